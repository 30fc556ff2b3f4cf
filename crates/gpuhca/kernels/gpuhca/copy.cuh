// Bytes from memory to memory, by all threads of a block with several loads in flight each.
#pragma once

#include "words.cuh"

namespace gpuhca {

/// Loads in flight of one thread.
inline constexpr uint32_t BATCH = 4;

/// Copies up to 15 bytes and more by the widest words that both addresses allow, in ascending
/// order. One thread.
WV_DEVICE void copy_few(uint64_t to, uint64_t from, uint64_t bytes) {
  while (bytes != 0) {
    const uint64_t both = to | from;
    if (both % 8 == 0 && bytes >= 8) {
      platform::store_relaxed_sys(at<uint64_t>(to), platform::load_relaxed_sys(at<uint64_t>(from)));
      to += 8, from += 8, bytes -= 8;
    } else if (both % 4 == 0 && bytes >= 4) {
      platform::store_relaxed_sys(at<uint32_t>(to), platform::load_relaxed_sys(at<uint32_t>(from)));
      to += 4, from += 4, bytes -= 4;
    } else {
      *at<volatile uint8_t>(to) = *at<volatile uint8_t>(from);
      ++to, ++from, --bytes;
    }
  }
}

/// Stores bytes of this block's shared memory in ascending order, by the widest words that the
/// target allows. One thread.
WV_DEVICE void store_few(uint64_t to, const uint8_t* from, uint64_t bytes) {
  while (bytes != 0) {
    if (to % 8 == 0 && bytes >= 8) {
      uint64_t word;
      memcpy(&word, from, sizeof word);
      platform::store_relaxed_sys(at<uint64_t>(to), word);
      to += 8, from += 8, bytes -= 8;
    } else if (to % 4 == 0 && bytes >= 4) {
      uint32_t word;
      memcpy(&word, from, sizeof word);
      platform::store_relaxed_sys(at<uint32_t>(to), word);
      to += 4, from += 4, bytes -= 4;
    } else {
      *at<volatile uint8_t>(to) = *from;
      ++to, ++from, --bytes;
    }
  }
}

/// The middle of a copy: `count` words of T at aligned addresses, weak.
template <class T>
WV_DEVICE void copy_words(uint64_t to, uint64_t from, uint64_t count) {
  const T* const source = at<const T>(from);
  T* const target = at<T>(to);
  const uint64_t step = wv::block_threads();
  uint64_t i = wv::thread_in_block();
  for (; i + (BATCH - 1) * step < count; i += BATCH * step) {
    T words[BATCH];
    for (uint32_t k = 0; k < BATCH; ++k) words[k] = source[i + k * step];
    for (uint32_t k = 0; k < BATCH; ++k) target[i + k * step] = words[k];
  }
  for (; i < count; i += step) target[i] = source[i];
}

/// Copies `bytes` bytes. All threads of the block; no thread waits for another.
///
/// The block moves the middle by the widest words that both addresses allow. Weak loads and stores
/// suffice: the caller has taken an acquire fence since the bytes were announced. It takes a
/// release fence before it announces the copy. One thread moves what is shorter than 64 bytes, in
/// ascending order.
WV_DEVICE void copy_block(uint64_t to, uint64_t from, uint64_t bytes) {
  const uint64_t apart = to ^ from;
  const uint32_t width = apart % 16 == 0 ? 16 : apart % 8 == 0 ? 8 : apart % 4 == 0 ? 4 : 1;
  if (bytes < 64) {
    if (wv::thread_in_block() == 0) copy_few(to, from, bytes);
    return;
  }
  const uint64_t head = (0 - to) % width;
  const uint64_t middle = (bytes - head) / width * width;
  if (width == 16) {
    copy_words<platform::Vec16>(to + head, from + head, middle / 16);
  } else if (width == 8) {
    copy_words<uint64_t>(to + head, from + head, middle / 8);
  } else if (width == 4) {
    copy_words<uint32_t>(to + head, from + head, middle / 4);
  } else {
    copy_words<uint8_t>(to + head, from + head, middle);
  }
  if (wv::thread_in_block() == 0) {
    copy_few(to, from, head);
    const uint64_t done = head + middle;
    copy_few(to + done, from + done, bytes - done);
  }
}

}  // namespace gpuhca
