//! How a device call ended.

abi_enum! {
    /// How a device call ended. Failed never looks done: a call that is not known to have succeeded returns something else.
    pub enum Status {
        /// Done.
        OK / ok = 0,
        /// No ring space now, nothing was posted; only from `try_` calls.
        WOULD_BLOCK / would_block = 1,
        /// The deadline passed. The QP is healthy and a ticket stays valid.
        TIMEOUT / timeout = 2,
        /// The QP has an error completion: what is in flight has an unknown outcome.
        CQE_ERROR / cqe_error = 3,
        /// The host asked running calls to end.
        ABORTED / aborted = 4,
        /// The ticket belongs to an earlier life of the QP.
        STALE_LIFE / stale_life = 5,
        /// A bad argument: nothing was posted.
        INVALID / invalid = 6,
        /// The QP was in error and flushed the work: the cause is in the first error, which was not seen.
        FLUSHED / flushed = 7,
        /// The peer is being replaced or its QPs are being reset: no guard is given out, nothing was posted.
        CLOSED / closed = 8,
    }
}

#[cfg(test)]
mod tests {
    use super::Status;

    #[test]
    fn a_status_without_a_name_prints_its_number() {
        assert_eq!(format!("{:?}", Status::CQE_ERROR), "cqe_error");
        assert_eq!(format!("{:?}", Status(99)), "Status(99)");
    }
}
