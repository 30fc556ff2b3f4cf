//! What the experts of the demo compute: y = x · scale(e) + shift(e). Each operation is rounded to f32, and the result to BF16.

use moe_reference::bf16;

/// Returns scale and shift of expert `id`. They differ for every expert, and are exact in f32.
pub(super) fn factors(id: u32) -> [f32; 2] {
    #[expect(clippy::cast_precision_loss, reason = "expert ids are below 2^16")]
    let (id, step) = (id as f32, (id % 31) as f32);
    [0.5 + id / 1024.0, (step - 15.0) / 32.0]
}

/// Computes on the host what the kernel `wv_demo_expert` computes.
pub(super) fn expert(id: u32, x: &[u16], y: &mut [u16]) {
    let [scale, shift] = factors(id);
    for (y, &x) in y.iter_mut().zip(x) {
        *y = bf16::from_f32(bf16::to_f32(x) * scale + shift);
    }
}
