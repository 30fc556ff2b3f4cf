//! Objects of rdma-sys: what the program's own QPs and a team do in one context and domain, and what the head of a context is read by.

use std::mem::offset_of;

use test_support::hca::hca;

#[path = "../../examples/ping_pong.rs"]
mod ping_pong;

#[test]
fn a_program_and_a_team_share_a_context_and_a_domain() {
    let hca = hca();
    ping_pong::main().unwrap();
    let live = hca.live_objects();
    assert_eq!(live.total(), 0, "{live:?}");
    assert_eq!(hca.findings(), [""; 0]);
}

/// `verbs::adopt` reads these fields of what an application hands over.
#[test]
fn the_heads_of_context_and_domain_are_as_verbs_h_has_them() {
    use rdma_sys::{ibv_context, ibv_context_ops, ibv_pd};
    assert_eq!(offset_of!(ibv_context, device), 0);
    let ops = offset_of!(ibv_context, ops);
    let of = |field: usize| ops + field;
    assert_eq!(of(offset_of!(ibv_context_ops, _compat_query_device)), 8);
    assert_eq!(of(offset_of!(ibv_context_ops, _compat_query_port)), 16);
    assert_eq!(offset_of!(ibv_pd, context), 0);
}
