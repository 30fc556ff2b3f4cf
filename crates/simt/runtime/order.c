/* What `-fsanitize=thread` makes compiled kernels call, and what the headers of simt call in such a build: each access, atomic
 * and fence goes to the checker (crates/simt/src/check). In C, because stable Rust has no return address; not libtsan, because
 * that ignores fences, knows neither scopes nor devices, and takes over libc. Never instrumented itself.
 *
 * An atomic operation and the checker's note of it happen under the checker's lock, so that all threads of all workers agree on
 * their order. A device writes memory right after its own note, hence notes of loads come after the load. */
#include <stdint.h>
#include <string.h>

enum { LOAD = 1, STORE = 2 };         /* of an atomic; both: read-modify-write */
enum { WRITE = 1, NON_COHERENT = 2 }; /* of a plain access */

void simt_check_access(const volatile void *addr, uint64_t bytes, uint32_t flags, uint64_t pc, uint64_t frame);
void simt_check_atomic(const volatile void *addr, uint32_t bytes, uint32_t what, int order, uint32_t scope, uint64_t pc);
void simt_check_fence(uint32_t what, uint32_t scope);
void simt_check_lock(void);
void simt_check_unlock(void);

/* Scope of the atomics that run now: 0 block, 1 gpu, 2 system. Set by `simt::Scoped` for the time of one operation. */
__thread unsigned char simt_scope_tls __attribute__((tls_model("initial-exec"))) = 2;

#define PC ((uint64_t)__builtin_return_address(0))
#define FRAME ((uint64_t)__builtin_frame_address(0))

void __tsan_init(void) {}
void __tsan_func_entry(void *pc) { (void)pc; }
void __tsan_func_exit(void) {}

struct simt_ctx;
extern __thread struct simt_ctx *simt_cur_tls __attribute__((tls_model("initial-exec")));

/* threadIdx and its like go through a pointer that only the scheduler writes. */
static inline void plain(void *p, uint64_t bytes, uint32_t flags, uint64_t pc, uint64_t frame) {
    if (p != &simt_cur_tls) simt_check_access(p, bytes, flags, pc, frame);
}

#define PLAIN(n)                                                                                       \
    void __tsan_read##n(void *p) { plain(p, n, 0, PC, FRAME); }                            \
    void __tsan_write##n(void *p) { plain(p, n, WRITE, PC, FRAME); }                       \
    void __tsan_unaligned_read##n(void *p) { plain(p, n, 0, PC, FRAME); }                  \
    void __tsan_unaligned_write##n(void *p) { plain(p, n, WRITE, PC, FRAME); }             \
    void __tsan_volatile_read##n(void *p) { plain(p, n, 0, PC, FRAME); }                   \
    void __tsan_volatile_write##n(void *p) { plain(p, n, WRITE, PC, FRAME); }
PLAIN(1)
PLAIN(2)
PLAIN(4)
PLAIN(8)
PLAIN(16)

void __tsan_read_range(void *p, unsigned long n) { simt_check_access(p, n, 0, PC, FRAME); }
void __tsan_write_range(void *p, unsigned long n) { simt_check_access(p, n, WRITE, PC, FRAME); }
void __tsan_vptr_update(void **p, void *value) { (void)p, (void)value; }
void __tsan_vptr_read(void **p) { (void)p; }

/* `simt::copy`, `simt::load_constant`, `simt::store_weak`: accesses that the compiler does not see as such. */
void *simt_copy(void *to, const void *from, unsigned long n) {
    simt_check_access(from, n, 0, PC, FRAME);
    simt_check_access(to, n, WRITE, PC, FRAME);
    return memcpy(to, from, n);
}
void *simt_fill(void *to, int byte, unsigned long n) {
    simt_check_access(to, n, WRITE, PC, FRAME);
    return memset(to, byte, n);
}
void simt_note_constant(const void *from, unsigned long n) { simt_check_access(from, n, NON_COHERENT, PC, FRAME); }
void simt_store_weak(uint64_t *to, uint64_t lo, uint64_t hi) {
    simt_check_access(to, 16, WRITE, PC, FRAME);
    __atomic_store_n(to, lo, __ATOMIC_RELAXED);
    __atomic_store_n(to + 1, hi, __ATOMIC_RELAXED);
}

#define UPDATE(bits, name, builtin)                                                            \
    uint##bits##_t __tsan_atomic##bits##_##name(volatile uint##bits##_t *p, uint##bits##_t v, int order) { \
        simt_check_lock();                                                                     \
        uint##bits##_t old = builtin(p, v, __ATOMIC_SEQ_CST);                                  \
        simt_check_atomic(p, bits / 8, LOAD | STORE, order, simt_scope_tls, PC);               \
        simt_check_unlock();                                                                   \
        return old;                                                                            \
    }

#define ATOMICS(bits)                                                                          \
    uint##bits##_t __tsan_atomic##bits##_load(const volatile uint##bits##_t *p, int order) {   \
        simt_check_lock();                                                                     \
        uint##bits##_t v = __atomic_load_n(p, __ATOMIC_SEQ_CST);                               \
        simt_check_atomic(p, bits / 8, LOAD, order, simt_scope_tls, PC);                       \
        simt_check_unlock();                                                                   \
        return v;                                                                              \
    }                                                                                          \
    void __tsan_atomic##bits##_store(volatile uint##bits##_t *p, uint##bits##_t v, int order) { \
        simt_check_lock();                                                                     \
        simt_check_atomic(p, bits / 8, STORE, order, simt_scope_tls, PC);                      \
        __atomic_store_n(p, v, __ATOMIC_SEQ_CST);                                              \
        simt_check_unlock();                                                                   \
    }                                                                                          \
    UPDATE(bits, exchange, __atomic_exchange_n)                                                \
    UPDATE(bits, fetch_add, __atomic_fetch_add)                                                \
    UPDATE(bits, fetch_sub, __atomic_fetch_sub)                                                \
    UPDATE(bits, fetch_and, __atomic_fetch_and)                                                \
    UPDATE(bits, fetch_or, __atomic_fetch_or)                                                  \
    UPDATE(bits, fetch_xor, __atomic_fetch_xor)                                                \
    UPDATE(bits, fetch_nand, __atomic_fetch_nand)                                              \
    static int cas##bits(volatile uint##bits##_t *p, uint##bits##_t *expected, uint##bits##_t v, int order, int otherwise, \
                         uint64_t pc) {                                                        \
        simt_check_lock();                                                                     \
        int done = __atomic_compare_exchange_n(p, expected, v, 0, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST); \
        simt_check_atomic(p, bits / 8, done ? LOAD | STORE : LOAD, done ? order : otherwise, simt_scope_tls, pc); \
        simt_check_unlock();                                                                   \
        return done;                                                                           \
    }                                                                                          \
    int __tsan_atomic##bits##_compare_exchange_strong(volatile uint##bits##_t *p, uint##bits##_t *expected, \
                                                      uint##bits##_t v, int order, int otherwise) { \
        return cas##bits(p, expected, v, order, otherwise, PC);                                \
    }                                                                                          \
    int __tsan_atomic##bits##_compare_exchange_weak(volatile uint##bits##_t *p, uint##bits##_t *expected, \
                                                    uint##bits##_t v, int order, int otherwise) { \
        return cas##bits(p, expected, v, order, otherwise, PC);                                \
    }
ATOMICS(8)
ATOMICS(16)
ATOMICS(32)
ATOMICS(64)

/* A C++ fence of scope system: acquire 1, release 2. */
void __tsan_atomic_thread_fence(int order) {
    if (order != __ATOMIC_RELAXED) {
        const int acquire = order != __ATOMIC_RELEASE, release = order == __ATOMIC_RELEASE || order > __ATOMIC_RELEASE;
        simt_check_fence((uint32_t)(acquire | release << 1), simt_scope_tls);
    }
    __atomic_thread_fence(__ATOMIC_SEQ_CST);
}
void __tsan_atomic_signal_fence(int order) { (void)order; }
