//! A link aggregation group: in queue-affinity mode a QP names the port that its packets leave by before it is connected, in hash mode
//! none.

use mlx5_prm::cmd::{CmdIn, Opcode};
use mlx5_prm::hca_cap::{CapType, QueryHcaCapIn, QueryHcaCapOut};
use mlx5_prm::qp::{Ads, QpModifyIn, Qpc};
use mlx5_prm::roce::QueryLagOut;
use softhca::device::DevxObject;
use softhca::profile::Profile;
use softhca::{Hca, HcaConfig};
use softhca_rig::{End, Kind, Shape};

/// The port selection of `QUERY_LAG`.
const MODES: [u32; 2] = [QueryLagOut::QUEUE_AFFINITY, QueryLagOut::FLOW_TABLE];

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

/// Master, ports, state and mode of the group, as commands tell them.
fn told(hca: &Hca) -> [u32; 4] {
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
    let (state, mode) = (lag.lag_state(), lag.port_select_mode());
    [caps.lag_master(), caps.num_lag_ports(), state, mode]
}

/// Reset to RTR with this port of the group.
fn connect(hca: &Hca, end: &End, port: u32) -> Result<(), String> {
    let path = Ads::default()
        .with_src_addr_index(3)
        .with_rgid_rip(hca.gid())
        .with_hop_limit(64);
    let init = Qpc::default()
        .with_pm_state(Qpc::PM_STATE_MIGRATED)
        .with_lag_tx_port_affinity(port)
        .with_primary_address_path(Ads::default().with_vhca_port_num(1));
    end.modify(Opcode::RST2INIT_QP, init).unwrap();
    let connected = end.ready_to_receive_by(path, end.qpn, 7);
    connected.map_err(|error| error.to_string())
}

#[test]
fn a_qp_names_a_port_of_the_group_where_no_hash_finds_it() {
    let [affinity, hash] = MODES;
    for (profile, group, taken) in [
        (Profile::ConnectX7, [0; 4], vec![0]),
        (Profile::ConnectX7Lag, [1, 2, 1, affinity], vec![1, 2]),
        (Profile::ConnectX7LagHash, [1, 2, 1, hash], vec![0]),
    ] {
        for port in 0..=3 {
            let (hca, end) = end(profile);
            assert_eq!(told(&hca), group);
            match connect(&hca, &end, port) {
                // Without a group the number means nothing.
                Ok(()) => assert!(
                    group == [0; 4] || taken.contains(&port),
                    "{profile}: {port}"
                ),
                Err(error) => {
                    assert!(!taken.contains(&port), "{profile}: {port}: {error}");
                    assert!(error.contains("lag_tx_port_affinity"), "{error}");
                }
            }
        }
    }
}

#[test]
fn a_qp_that_sends_names_a_port_of_the_group_again() {
    let (hca, end) = end(Profile::ConnectX7Lag);
    connect(&hca, &end, 1).unwrap();
    end.ready_to_send(7);
    for (port, is_taken) in [(2, true), (1, true), (0, false), (3, false)] {
        let again = QpModifyIn::default()
            .with_opcode(Opcode::RTS2RTS_QP.0.into())
            .with_qpn(end.qpn)
            .with_opt_param_mask(QpModifyIn::OPT_LAG_TX_AFF)
            .with_qpc(Qpc::default().with_lag_tx_port_affinity(port));
        let object = DevxObject::Qp(end.qpn);
        let named = end
            .context
            .devx_modify(object, again.as_bytes(), &mut [0; 16]);
        assert_eq!(named.is_ok(), is_taken, "{port}: {named:?}");
        let in_force = end.query().lag_tx_port_affinity();
        assert_eq!(in_force == port, is_taken, "{port}: {in_force}");
    }
}
