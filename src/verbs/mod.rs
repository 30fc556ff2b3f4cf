//! RAII over DevX: context, PD, MR, UMEM, UAR, CQ, QP.
