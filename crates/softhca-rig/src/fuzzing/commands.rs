//! PRM commands.

use super::input::Input;
use crate::bringup::{Bringup, bring_up_in};
use mlx5_prm::cmd::CreateOut;
use softhca::device::{DevxObject, Simulation};
use softhca::wire::config::CarrierConfig;
use softhca::wire::memory::Network;
use softhca::{Hca, HcaConfig};
use std::net::Ipv4Addr;

/// Commands, one after the other: how, at which object, how many bytes of input and output, the input.
pub fn commands(data: &[u8]) {
    let (simulation, hca, made) = fresh();
    let mut objects = vec![DevxObject::Cq(made.cqn)];
    let mut numbers = vec![made.cqn, made.pdn, made.umem, made.page_id];
    let mut input = Input(data);
    while !input.is_empty() {
        let how = input.u8();
        let which = usize::from(input.u8());
        let output_bytes = usize::from(input.u16() % 600);
        let bytes = usize::from(input.u16() % 600);
        let mut command = input.piece(bytes).to_vec();
        let object = objects[which % objects.len()];
        if how & 0x80 != 0 && command.len() >= 12 {
            // The number that the handle stands for.
            let number = match object {
                DevxObject::Cq(number) | DevxObject::Qp(number) | DevxObject::Mkey(number) => {
                    number
                }
                _ => numbers[which % numbers.len()],
            };
            command[8..12].copy_from_slice(&number.to_be_bytes());
        }
        let mut output = vec![0xff; output_bytes];
        match how % 5 {
            0 => drop(made.context.devx_general(&command, &mut output)),
            1 => drop(made.context.devx_query(object, &command, &mut output)),
            2 => drop(made.context.devx_modify(object, &command, &mut output)),
            3 => {
                if let Ok(object) = made.context.devx_create(&command, &mut output) {
                    objects.push(object);
                    numbers.extend(CreateOut::from_bytes(&output).map(|reply| reply.number()));
                }
            }
            _ => {
                if made.context.devx_destroy(object).is_ok() && objects.len() > 1 {
                    objects.swap_remove(which % objects.len());
                }
            }
        }
        let now_ns = simulation.now_ns();
        simulation.step(now_ns);
    }
    made.context.close();
    assert_eq!(hca.live_objects().total(), 0);
}

/// Returns a device with one of everything but a QP. Its numbers are the same each time.
fn fresh() -> (Simulation, Hca, Bringup) {
    let simulation = Simulation::new();
    let hca = simulation
        .hca(&HcaConfig {
            ip: Some(Ipv4Addr::new(10, 0, 0, 1)),
            carrier: CarrierConfig::Memory(Network::default()),
            ..HcaConfig::default()
        })
        .unwrap();
    let made = bring_up_in(hca.open().unwrap()).unwrap();
    (simulation, hca, made)
}

/// The numbers that commands may name.
pub struct Numbers {
    /// The protection domain.
    pub pdn: u32,
    /// The memory.
    pub umem: u32,
    /// The UAR page.
    pub page_id: u32,
    /// The completion queue.
    pub cqn: u32,
}

/// Returns the numbers that objects get in a new context, which seeds name.
pub fn bring_up_numbers() -> Numbers {
    let (_simulation, _hca, made) = fresh();
    Numbers {
        pdn: made.pdn,
        umem: made.umem,
        page_id: made.page_id,
        cqn: made.cqn,
    }
}
