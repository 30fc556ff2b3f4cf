// Loads, stores and atomics on memory of a peer that this rank's kernels can reach: the direct
// branch of path.cuh.
//
// All of these accesses have system scope. Loads are volatile, so that they go past L1, which may
// hold old values of words that the peer has changed.
#pragma once

#include "../coop.cuh"
#include "atomic.cuh"

namespace wv::direct {

/// Copies every `step`th word of T, from number `first` on.
template <class T>
WV_DEVICE void copy_words(uint64_t dst, uint64_t src, uint64_t bytes, uint64_t first,
                          uint64_t step) {
  for (uint64_t at = first * sizeof(T); at + sizeof(T) <= bytes; at += step * sizeof(T)) {
    *reinterpret_cast<volatile T*>(dst + at) = *reinterpret_cast<const volatile T*>(src + at);
  }
}

/// The number of 16-byte loads that a copying thread has in flight.
inline constexpr uint32_t BATCH = 4;

/// Copies every `step`th of `vectors` 16-byte vectors, from number `first` on. The loads of a batch
/// are issued before the first of its stores.
WV_DEVICE void copy_vectors(uint64_t dst, uint64_t src, uint64_t vectors, uint64_t first,
                            uint64_t step) {
  for (uint64_t base = first; base < vectors; base += BATCH * step) {
    platform::Vec16 batch[BATCH];
    platform::note_loads(BATCH);
    for (uint32_t k = 0; k < BATCH; ++k) {
      // The last vector stands for all after it, so that no load depends on a branch.
      const uint64_t at = base + k * step < vectors ? base + k * step : vectors - 1;
      batch[k] = platform::load16_volatile(reinterpret_cast<const void*>(src + 16 * at));
    }
    for (uint32_t k = 0; k < BATCH; ++k) {
      const uint64_t at = base + k * step;
      if (at < vectors) {
        platform::store16_volatile(reinterpret_cast<void*>(dst + 16 * at), batch[k]);
      }
    }
  }
}

/// Copies this thread's part of `bytes`, which `threads` threads copy together: in the widest words
/// that both addresses allow, then in bytes.
WV_DEVICE void copy(uint64_t dst, uint64_t src, uint64_t bytes, uint32_t thread, uint32_t threads) {
  const uint64_t both = dst | src;
  uint64_t whole = 0;
  if (both % 16 == 0) {
    copy_vectors(dst, src, bytes / 16, thread, threads);
    whole = bytes / 16 * 16;
  }
  if (both % 8 == 0) {
    copy_words<uint64_t>(dst + whole, src + whole, bytes - whole, thread, threads);
    whole = bytes / 8 * 8;
  } else if (both % 4 == 0) {
    copy_words<uint32_t>(dst, src, bytes, thread, threads);
    whole = bytes / 4 * 4;
  }
  copy_words<uint8_t>(dst + whole, src + whole, bytes - whole, thread, threads);
}

/// Copies the bytes that each active thread names; the lanes of a whole warp copy together. After
/// that all threads of the scope know that the copies are done.
template <class Scope>
WV_DEVICE Posted transfer(Scope scope, uint64_t dst, uint64_t src, uint64_t bytes, bool active) {
  if (scope.any(active && bytes == 0) || !scope.any(active)) return {Status::invalid, {0}};
  scope.sync();  // makes the sources known that other threads of the scope have written
  if (scope.whole_warps()) {
    constexpr Warp warp{};
    for (uint32_t rest = warp.ballot(active); rest != 0; rest &= rest - 1) {
      const uint32_t from = __ffs(rest) - 1;
      copy(warp.shuffle(dst, from), warp.shuffle(src, from), warp.shuffle(bytes, from), lane(), 32);
    }
  } else if (active) {
    copy(dst, src, bytes, 0, 1);
  }
  scope.sync();
  return {Status::ok, Ticket::done()};
}

/// Stores a value in words of 8 bytes where its address allows that, else of 4.
WV_DEVICE void store(uint64_t dst, const wqe::Payload& value) {
  const uint32_t words = value.bytes / 4;
  uint32_t word = 0;
  if (dst % 8 == 0) {
    for (; word + 2 <= words; word += 2) {
      platform::store_relaxed_sys(reinterpret_cast<uint64_t*>(dst + 4 * word),
                                  wqe::pair(value.words[word], value.words[word + 1]));
    }
  }
  for (; word < words; ++word) {
    platform::store_relaxed_sys(reinterpret_cast<uint32_t*>(dst + 4 * word), value.words[word]);
  }
}

/// Orders the scope's accesses before what follows. A barrier makes them known to the leader, which
/// then takes a fence of system scope.
template <class Scope>
WV_DEVICE void settle(Scope scope) {
  scope.sync();
  // Release and acquire. Orders everything that the scope has stored before what it does next, and
  // what it loads next after this fence. Pairs with the fence of the thread that reads a signal, or
  // that wrote the fetched bytes.
  if (scope.leader()) platform::fence_acq_rel_sys();
  scope.sync();
}

/// Does `Op` to the word at `dst`. Returns the old value.
template <AmoOp Op, class T>
WV_DEVICE T amo(uint64_t dst, T value, T compare) {
  static_assert(detail::IS_AMO_WORD<T>, "4 or 8 bytes");
  using Word = detail::AmoWord<T>;
  Word word, other;
  memcpy(&word, &value, sizeof word);
  memcpy(&other, &compare, sizeof other);
  auto* const p = reinterpret_cast<Word*>(dst);
  if constexpr (Op == AmoOp::fetch_add) {
    word = platform::add_relaxed_sys(p, word);
  } else if constexpr (Op == AmoOp::compare_swap) {
    word = platform::compare_exchange_relaxed_sys(p, other, word);
  } else if constexpr (Op == AmoOp::swap) {
    word = platform::exchange_relaxed_sys(p, word);
  } else if constexpr (Op == AmoOp::fetch_and) {
    word = platform::and_relaxed_sys(p, word);
  } else if constexpr (Op == AmoOp::fetch_or) {
    word = platform::or_relaxed_sys(p, word);
  } else {
    word = platform::xor_relaxed_sys(p, word);
  }
  T old;
  memcpy(&old, &word, sizeof old);
  return old;
}

/// Stores or adds the leader's `value` after all that the scope has stored.
template <bool ADD, class Scope, class T>
WV_DEVICE Posted signal(Scope scope, uint64_t dst, const T& value) {
  if constexpr (ADD) {
    if (scope.any(scope.leader() && dst % sizeof(T) != 0)) return {Status::invalid, {0}};
  }
  settle(scope);
  if (scope.leader()) {
    if constexpr (ADD) {
      amo<AmoOp::fetch_add>(dst, value, value);
    } else {
      store(dst, wqe::payload(value));
    }
  }
  return {Status::ok, Ticket::done()};
}

}  // namespace wv::direct
