/* The thread of a kernel that this OS thread runs now: what `threadIdx` and its like read. In C, because stable Rust cannot
 * define a thread-local with a symbol. The scheduler stores here before each switch; null outside a launch. */
struct simt_ctx;

__thread struct simt_ctx *simt_cur_tls __attribute__((tls_model("initial-exec")));

#ifdef SIMT_ASAN
/* AddressSanitizer asks for it. CUDA threads that were abandoned leave what they had allocated. */
const char *__asan_default_options(void);
const char *__asan_default_options(void) { return "detect_leaks=0:allow_user_segv_handler=0"; }
#endif

struct simt_ctx **simt_cur_slot(void) { return &simt_cur_tls; }

/* The place in the code is the return address: lanes that call from one place are together there, as on a GPU. */
void simt_diverge_at(const void *site);
void simt_diverge(void);
void simt_diverge(void) { simt_diverge_at(__builtin_return_address(0)); }
