//! The state transitions of a queue pair that are allowed in each state.
//!
//! Source: PRM "QP State Transition Commands"; the operation table of mlx5's `modify_qp` in Linux.

use mlx5_prm::cmd::Opcode;
use mlx5_prm::qp::QpState;

/// Returns the state that `opcode` leads to from `state`, or `None` if it is not allowed there. Any state and any opcode may be given.
pub(crate) fn after(state: QpState, opcode: Opcode) -> Option<QpState> {
    match (state, opcode) {
        (_, Opcode::TO_RST_QP) => Some(QpState::RST),
        (_, Opcode::TO_ERR_QP) => Some(QpState::ERR),
        (QpState::RST, Opcode::RST2INIT_QP) => Some(QpState::INIT),
        (QpState::INIT, Opcode::INIT2INIT_QP) => Some(QpState::INIT),
        (QpState::INIT, Opcode::INIT2RTR_QP) => Some(QpState::RTR),
        (QpState::RTR, Opcode::RTR2RTS_QP) => Some(QpState::RTS),
        (QpState::RTS, Opcode::RTS2RTS_QP) => Some(QpState::RTS),
        (QpState::RTS, Opcode::RTS2SQD_QP) => Some(QpState::SQD),
        (QpState::SQD, Opcode::SQD_RTS_QP | Opcode::SQD2RTS_QP) => Some(QpState::RTS),
        (QpState::SQER, Opcode::SQERR2RTS_QP) => Some(QpState::RTS),
        _ => None,
    }
}

/// Returns whether the state answers requests of the peer.
pub(crate) fn receives(state: QpState) -> bool {
    matches!(
        state,
        QpState::RTR | QpState::RTS | QpState::SQD | QpState::SQER
    )
}

/// Returns whether a doorbell counts in the state: the WQEs that it announces are work of the send queue from then on.
///
/// | state | what becomes of that work |
/// |---|---|
/// | RST, INIT, RTR | nothing: the doorbell is ignored, as software may not post sends yet |
/// | RTS | the device runs it |
/// | SQD | the device runs it once the QP is back in RTS: a draining queue begins nothing new |
/// | SQER, ERR | the device flushes it |
///
/// Source: `InfiniBand` specification, 10.3.1 "Queue Pair and EE Context States".
pub(crate) fn takes_doorbells(state: QpState) -> bool {
    matches!(
        state,
        QpState::RTS | QpState::SQD | QpState::SQER | QpState::ERR
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn doorbells_count_from_rts_on() {
        let taking: Vec<QpState> = (0..=u8::MAX)
            .map(QpState)
            .filter(|state| takes_doorbells(*state))
            .collect();
        let expected = [QpState::RTS, QpState::SQER, QpState::SQD, QpState::ERR];
        assert_eq!(taking, expected);
    }

    #[test]
    fn every_state_and_every_transition_agree_with_the_table_of_the_manual() {
        const OPCODES: [Opcode; 12] = [
            Opcode::RST2INIT_QP,
            Opcode::INIT2INIT_QP,
            Opcode::INIT2RTR_QP,
            Opcode::RTR2RTS_QP,
            Opcode::RTS2RTS_QP,
            Opcode::RTS2SQD_QP,
            Opcode::SQD_RTS_QP,
            Opcode::SQD2RTS_QP,
            Opcode::SQERR2RTS_QP,
            Opcode::TO_ERR_QP,
            Opcode::TO_RST_QP,
            Opcode::QUERY_QP,
        ];
        const RST: Option<QpState> = Some(QpState::RST);
        const INI: Option<QpState> = Some(QpState::INIT);
        const RTR: Option<QpState> = Some(QpState::RTR);
        const RTS: Option<QpState> = Some(QpState::RTS);
        const SQD: Option<QpState> = Some(QpState::SQD);
        const ERR: Option<QpState> = Some(QpState::ERR);
        const NO: Option<QpState> = None;
        #[rustfmt::skip]
        let table = [
            //               2INIT INIT  2RTR  2RTS  RTS   2SQD  D2RTS D2RTS E2RTS 2ERR 2RST query
            (QpState::RST,  [INI,  NO,   NO,   NO,   NO,   NO,   NO,   NO,   NO,   ERR, RST, NO]),
            (QpState::INIT, [NO,   INI,  RTR,  NO,   NO,   NO,   NO,   NO,   NO,   ERR, RST, NO]),
            (QpState::RTR,  [NO,   NO,   NO,   RTS,  NO,   NO,   NO,   NO,   NO,   ERR, RST, NO]),
            (QpState::RTS,  [NO,   NO,   NO,   NO,   RTS,  SQD,  NO,   NO,   NO,   ERR, RST, NO]),
            (QpState::SQD,  [NO,   NO,   NO,   NO,   NO,   NO,   RTS,  RTS,  NO,   ERR, RST, NO]),
            (QpState::SQER, [NO,   NO,   NO,   NO,   NO,   NO,   NO,   NO,   RTS,  ERR, RST, NO]),
            (QpState::ERR,  [NO,   NO,   NO,   NO,   NO,   NO,   NO,   NO,   NO,   ERR, RST, NO]),
        ];
        for (state, row) in table {
            for (opcode, expected) in OPCODES.into_iter().zip(row) {
                assert_eq!(after(state, opcode), expected, "{opcode} in {state}");
            }
        }
    }

    #[test]
    fn unknown_states_and_opcodes_have_an_answer_too() {
        for state in 0..=u8::MAX {
            for opcode in 0..=u16::MAX {
                let _ = after(QpState(state), Opcode(opcode));
            }
        }
    }
}
