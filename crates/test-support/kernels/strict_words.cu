// put_words.cu with flag words and fences as the PTX memory model asks for them (WV_STRICT,
// order.cuh). tests/device/put_model.rs runs both.
#define WV_STRICT
// Names of their own: inline functions of both builds meet in one library.
#define wv wv_strict
#define wv_test wv_strict_test

#define wv_test_put_words wv_strict_put_words
#define wv_test_put_words_exclusive wv_strict_put_words_exclusive
#define wv_test_put_words_warp wv_strict_put_words_warp
#define wv_test_put_words_warp_exclusive wv_strict_put_words_warp_exclusive
#define wv_test_put_words_unsignalled wv_strict_put_words_unsignalled
#define wv_test_try_put_words wv_strict_try_put_words
#define wv_test_put_words_one_round wv_strict_put_words_one_round

#include <warpverbs/wait.cuh>

static_assert(wv::order::STRICT);

// The kernels are exported below, by the names that they have here.
#pragma push_macro("WV_EXPORT")
#undef WV_EXPORT
#define WV_EXPORT(kernel)
#include "put_words.cu"
#pragma pop_macro("WV_EXPORT")

WV_EXPORT(wv_strict_put_words)
WV_EXPORT(wv_strict_put_words_exclusive)
WV_EXPORT(wv_strict_put_words_warp)
WV_EXPORT(wv_strict_put_words_warp_exclusive)
WV_EXPORT(wv_strict_put_words_unsignalled)
WV_EXPORT(wv_strict_try_put_words)
WV_EXPORT(wv_strict_put_words_one_round)
