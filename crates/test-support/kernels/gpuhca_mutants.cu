// HCAs that break their promises, each in one way. The tests of gpuhca must catch every one of
// them.
#include "../../gpuhca/kernels/gpuhca/run.cuh"

// Writes the CQE before the bytes.
extern "C" __global__ void gpuhca_completes_early(gpuhca::GpuhcaParams p) {
  gpuhca::run<gpuhca::Defect::completes_early>(p);
}
WV_EXPORT(gpuhca_completes_early)

// Moves the bytes of a long put after its signal.
extern "C" __global__ void gpuhca_data_late(gpuhca::GpuhcaParams p) {
  gpuhca::run<gpuhca::Defect::data_late>(p);
}
WV_EXPORT(gpuhca_data_late)
