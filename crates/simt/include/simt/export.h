// SIMT_EXPORT(kernel): the entry that the Rust side calls once per CUDA thread. It gets the
// argument array of a launch: one pointer per parameter, as for cuLaunchKernel. `simt::build` finds
// these lines and lists the kernels.
#pragma once

#include <cxxabi.h>

#include <cstddef>
#include <cstdio>
#include <exception>
#include <type_traits>
#include <utility>

#include "runtime.h"

namespace simt {

template <class... Args, std::size_t... I>
inline void call(void (*kernel)(Args...), void** args, std::index_sequence<I...>) {
  (void)args;
  kernel(*reinterpret_cast<std::remove_reference_t<Args>*>(args[I])...);
}

// Kept out of `invoke`, whose frame every CUDA thread pays for.
__attribute__((noinline, cold)) inline const char* exception_text(const char* kind,
                                                                  const char* what) {
  static thread_local char text[256];
  snprintf(text, sizeof text, "C++ exception %s%s", kind, what);
  return text;
}

// Device code cannot throw; library code that it calls on the CPU might. Such an exception must not
// reach the Rust frames below, which could only abort. A Rust panic on its way through (it has no
// C++ type) goes on.
template <class... Args>
inline void invoke(void (*kernel)(Args...), void** args) {
  const char* text;
  try {
    call(kernel, args, std::index_sequence_for<Args...>{});
    return;
  } catch (const std::exception& error) {
    text = exception_text("", error.what());
  } catch (...) {
    const std::type_info* type = abi::__cxa_current_exception_type();
    if (type == nullptr) throw;
    text = exception_text("of type ", type->name());
  }
  // Outside the handlers: the exception is gone, nothing stays open on this OS thread.
  simt_fail(text);
}

}  // namespace simt

#define SIMT_EXPORT(kernel)                         \
  extern "C" void simt_entry_##kernel(void** args); \
  extern "C" void simt_entry_##kernel(void** args) { ::simt::invoke(&kernel, args); }
