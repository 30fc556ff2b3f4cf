//! A link aggregation group in queue-affinity mode: a QP names the port that its packets leave by before it is connected.

use mlx5_prm::cmd::{CmdIn, Opcode};
use mlx5_prm::hca_cap::{CapType, QueryHcaCapIn, QueryHcaCapOut};
use mlx5_prm::qp::Ads;
use mlx5_prm::roce::QueryLagOut;
use softhca::profile::Profile;
use softhca::{Hca, HcaConfig};
use softhca_rig::{End, Kind, Shape};

fn end(profile: Profile) -> (Hca, End) {
    let config = HcaConfig {
        profile,
        ..HcaConfig::default()
    };
    let hca = Hca::with_config(config).unwrap();
    let shape = Shape {
        kind: Kind::Rc,
        ..Shape::default()
    };
    let end = End::new(&hca, shape);
    (hca, end)
}

/// Master, ports and state of the group, as commands tell them.
fn told(hca: &Hca) -> [u32; 3] {
    let context = hca.open().unwrap();
    let mut caps = QueryHcaCapOut::default();
    let query = QueryHcaCapIn::default()
        .with_opcode(u32::from(Opcode::QUERY_HCA_CAP.0))
        .with_op_mod(CapType::GENERAL.current());
    context
        .devx_general(query.as_bytes(), bytemuck::bytes_of_mut(&mut caps))
        .unwrap();
    let mut lag = QueryLagOut::default();
    let query = CmdIn::default().with_opcode(u32::from(Opcode::QUERY_LAG.0));
    context
        .devx_general(query.as_bytes(), bytemuck::bytes_of_mut(&mut lag))
        .unwrap();
    let caps = caps.cmd_hca_cap();
    [caps.lag_master(), caps.num_lag_ports(), lag.lag_state()]
}

#[test]
fn a_qp_that_names_no_port_of_the_group_is_not_connected() {
    for (profile, refuses) in [(Profile::ConnectX7, false), (Profile::ConnectX7Lag, true)] {
        let (hca, end) = end(profile);
        let ports = if refuses { [1, 2, 1] } else { [0; 3] };
        assert_eq!(told(&hca), ports);
        let path = Ads::default()
            .with_src_addr_index(3)
            .with_rgid_rip(hca.gid())
            .with_hop_limit(64);
        end.init();
        match end.ready_to_receive_by(path, end.qpn, 7) {
            Ok(()) => assert!(!refuses, "without a port"),
            Err(error) => {
                assert!(refuses, "{error}");
                assert!(
                    error.to_string().contains("lag_tx_port_affinity"),
                    "{error}"
                );
            }
        }
    }
}
