//! The shape of one call: another format, or fewer tokens, in the slots of a layer that was made for more.

use crate::abi::DispatchSendParams;
use crate::moe::{Format, Layout, MoeConfig, MoeError};

/// Returns the shape of a call: the layer's own with the format and the tokens of the call. Its outputs are sized by it. Refuses a
/// shape that the slots do not hold.
pub(in crate::moe) fn of_call(
    layer: &MoeConfig,
    ranks: u32,
    format: Option<Format>,
    max_tokens: u32,
) -> Result<MoeConfig, MoeError> {
    let call = MoeConfig {
        format: format.unwrap_or(layer.format),
        max_tokens: match max_tokens {
            0 => layer.max_tokens,
            own => own,
        },
        ..*layer
    };
    call.check(ranks)?;
    if call.max_tokens > layer.max_tokens {
        return Err(MoeError::Shape {
            name: "max_tokens of a call",
            value: call.max_tokens,
            least: 1,
            most: layer.max_tokens,
        });
    }
    let (own, slots) = (Layout::new(&call, ranks), Layout::new(layer, ranks));
    let (bytes, room) = (own.scales_at + own.scale_bytes, slots.slot_bytes);
    if bytes <= room {
        return Ok(call);
    }
    Err(MoeError::Slot {
        format: format!("{:?}", call.format),
        bytes,
        room,
    })
}

/// Returns parameters that tell the shape of `call`; all zero for the layer's own shape. Their other fields are zero.
pub(in crate::moe) fn params(
    layer: &MoeConfig,
    call: &MoeConfig,
    ranks: u32,
) -> DispatchSendParams {
    if (call.format, call.max_tokens) == (layer.format, layer.max_tokens) {
        return DispatchSendParams::default();
    }
    let layout = Layout::new(call, ranks);
    let small = |bytes: u64| u32::try_from(bytes).expect("checked with the shape");
    DispatchSendParams {
        max_tokens: call.max_tokens,
        format: call.format.code(),
        scales: call.format.scales_code(),
        row_bytes: small(layout.row_bytes),
        scale_bytes: small(layout.scale_bytes),
        ..DispatchSendParams::default()
    }
}

/// Returns the tag that kernels give to the shape of `call`, a call of `layer`; 0 is the layer's own shape. Twin: `tag_of` in
/// `begin.cuh`.
pub(in crate::moe) fn tag_of(layer: &MoeConfig, call: &MoeConfig, ranks: u32) -> u32 {
    if (call.format, call.max_tokens) == (layer.format, layer.max_tokens) {
        return 0;
    }
    let layout = Layout::new(call, ranks);
    let small = |bytes: u64| u32::try_from(bytes).expect("checked with the shape");
    let kind = call.format.code().0 << 2 | call.format.scales_code().0;
    let mix = |sum: u32, length: u32| {
        let product = (sum ^ length).wrapping_mul(0x9e37_79b1);
        product ^ product >> 15
    };
    let lengths = [
        call.max_tokens,
        small(layout.row_bytes),
        small(layout.scale_bytes),
    ];
    (kind + 1) << 11 | lengths.into_iter().fold(0, mix) >> 21
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::abi::{MoeFormat, MoeScales};
    use crate::moe::Scales;

    const LAYER: MoeConfig = MoeConfig::BF16
        .with_hidden(512)
        .with_experts(8)
        .with_top_k(2)
        .with_max_tokens(64);

    #[test]
    fn a_call_may_be_smaller_than_its_layer_and_no_larger() {
        let call = |format, max_tokens| of_call(&LAYER, 4, format, max_tokens);
        let message = |format, max_tokens| call(format, max_tokens).unwrap_err().to_string();
        assert_eq!(call(None, 0).unwrap(), LAYER);
        let fp8 = Format::Fp8(Scales::Ue8m0);
        let small = call(Some(fp8), 7).unwrap();
        assert_eq!((small.format, small.max_tokens), (fp8, 7));
        assert_eq!(
            message(None, 65),
            "max_tokens of a call is 65; it must be 1 to 64"
        );
        let large = Format::Opaque {
            payload_bytes: 1024,
            scale_bytes: 4,
        };
        assert_eq!(
            message(Some(large), 0),
            "a token of Opaque { payload_bytes: 1024, scale_bytes: 4 } takes 1156 bytes of a slot; those of the layer have 1152. Make the layer with the largest format of its calls"
        );
        let odd = Format::Opaque {
            payload_bytes: 24,
            scale_bytes: 0,
        };
        assert!(message(Some(odd), 0).starts_with("payload_bytes is 24"));
        let narrow = LAYER.with_hidden(520);
        let refused = of_call(&narrow, 4, Some(fp8), 0).unwrap_err().to_string();
        assert!(refused.starts_with("hidden is 520"), "{refused}");
    }

    #[test]
    fn the_shape_of_the_layer_is_not_said_and_others_are_in_fields() {
        let shape_of = |format, max_tokens| {
            let call = of_call(&LAYER, 4, format, max_tokens).unwrap();
            let params = params(&LAYER, &call, 4);
            assert_eq!((params.tokens, params.flags), (0, 0));
            let lengths = [params.max_tokens, params.row_bytes, params.scale_bytes];
            (lengths, params.format, params.scales)
        };
        let layers_own = ([0; 3], MoeFormat(0), MoeScales(0));
        assert_eq!(shape_of(None, 0), layers_own);
        assert_eq!(shape_of(Some(Format::Bf16), 64), layers_own);
        // 512 bytes of a row, one word of scales.
        let fp8 = ([7, 512, 4], MoeFormat::FP8, MoeScales::UE8M0);
        assert_eq!(shape_of(Some(Format::Fp8(Scales::Ue8m0)), 7), fp8);
        let bf16 = ([7, 1024, 0], MoeFormat::BF16, MoeScales::F32);
        assert_eq!(shape_of(None, 7), bf16);
    }

    #[test]
    fn shapes_of_one_layer_have_tags_of_their_own_and_that_of_the_layer_none() {
        let layer = MoeConfig::BF16
            .with_hidden(512)
            .with_experts(8)
            .with_top_k(2)
            .with_max_tokens(64);
        let tag = |format, max_tokens| {
            let call = MoeConfig {
                format,
                max_tokens,
                ..layer
            };
            tag_of(&layer, &call, 4)
        };
        assert_eq!(tag(Format::Bf16, 64), 0);
        let fp8 = [Scales::F32, Scales::PowerOfTwo, Scales::Ue8m0].map(Format::Fp8);
        let mut tags: Vec<u32> = fp8.iter().map(|format| tag(*format, 64)).collect();
        tags.extend([1, 7, 32, 63].map(|tokens| tag(Format::Bf16, tokens)));
        assert!(tags.iter().all(|tag| (1..1 << 16).contains(tag)));
        tags.sort_unstable();
        tags.dedup();
        assert_eq!(tags.len(), 7);
    }
}
