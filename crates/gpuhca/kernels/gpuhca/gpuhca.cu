// The HCA as a kernel: a persistent grid that executes the WQEs of all external HCAs of softhca.
//
// A block owns the QPs of every `blocks`-th entry of the table, one after the other. It looks at
// their doorbells with one thread per QP, gives those with work a turn, and says which generation
// of the tables it has finished a pass with. It ends when the host says so, or by its deadline.
#include "run.cuh"

extern "C" __global__ void gpuhca_serve(gpuhca::GpuhcaParams p) {
  gpuhca::run<gpuhca::Defect::none>(p);
}
WV_EXPORT(gpuhca_serve)
