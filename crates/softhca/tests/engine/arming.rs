//! Completion queues made by DevX commands and armed by hand.

use mlx5_prm::cqe::CqeOpcode;
use softhca::HcaConfig;
use softhca::device::{Event, Simulation};
use softhca::wire::memory::Network;
use softhca_rig::{End, Shape, simulated_pair};

/// Two queues of one page are armed one right after the other: the second store overwrites the first in the register before the
/// engine has looked. The arm word of a first arming is 0, as memory is that nobody has written.
#[test]
fn two_queues_armed_at_once_for_the_first_time_both_raise_events() {
    // Without threads: the engine looks when the test lets it.
    let simulation = Simulation::new();
    let network = Network::with_latency(1000);
    let hcas = simulated_pair(&simulation, &network, &HcaConfig::default());
    let mut first = End::new(&hcas[0], Shape::default());
    let mut second = first.beside_in_page(Shape::default());
    first.connect(hcas[0].gid(), second.qpn, 7);
    second.connect(hcas[0].gid(), first.qpn, 7);
    // The handler is the second end's, which was set last.
    let events = second.events.clone();
    let queues = [first.cqn, second.cqn];
    let mut now_ns = simulation.now_ns();
    for sequence in 0..5 {
        first.arm(sequence);
        second.arm(sequence);
        simulation.step(now_ns);
        assert_eq!(*events.lock().unwrap(), [], "nothing has completed");
        for end in [&mut first, &mut second] {
            end.nop(true);
            end.post();
            let mut cqe = None;
            while cqe.is_none() {
                let step = simulation.step(now_ns);
                cqe = end.poll_for(std::time::Duration::ZERO, |_| true);
                if cqe.is_none() && !step.busy {
                    now_ns = step.deadline_ns.expect("the NOP is under way");
                }
            }
            assert_eq!(cqe.map(|cqe| cqe.opcode()), Some(CqeOpcode::REQ));
        }
        simulation.step(now_ns);
        let seen = std::mem::take(&mut *events.lock().unwrap());
        assert_eq!(seen, queues.map(Event::CqCompletion), "arming {sequence}");
    }
}
