//! Rules of QP transitions: the attributes that each transition needs and allows.
//!
//! Source: `qp_state_table` and `ib_modify_qp_is_ok` in Linux (`drivers/infiniband/core/verbs.c`), which is the table of the
//! InfiniBand specification, section 11.2.4.2; the operation table of `__mlx5_ib_modify_qp` and its `opt_mask`.

use mlx5_prm::cmd::Opcode;
use mlx5_prm::qp::QpModifyIn;

/// The service of a QP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Rc,
    Uc,
    Ud,
    XrcInitiator,
    XrcTarget,
}

impl Kind {
    /// Returns the service for a value of `enum ib_uverbs_qp_type`, if the device has it.
    pub(super) fn of_verbs(number: u64) -> Option<Self> {
        Some(match number {
            2 => Self::Rc,
            3 => Self::Uc,
            4 => Self::Ud,
            9 => Self::XrcInitiator,
            10 => Self::XrcTarget,
            _ => return None,
        })
    }

    /// Returns the value of `st` in a QP context.
    pub(super) fn service(self) -> u32 {
        match self {
            Self::Rc => 0,
            Self::Uc => 1,
            Self::Ud => 2,
            Self::XrcInitiator | Self::XrcTarget => 3,
        }
    }

    pub(super) fn has_receive_ring(self) -> bool {
        !matches!(self, Self::XrcInitiator | Self::XrcTarget)
    }
}

/// The state of a QP, `enum ib_qp_state`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    Reset,
    Init,
    Rtr,
    Rts,
    Sqd,
    Sqe,
    Error,
}

impl State {
    pub(super) const ALL: [Self; 7] = [
        Self::Reset,
        Self::Init,
        Self::Rtr,
        Self::Rts,
        Self::Sqd,
        Self::Sqe,
        Self::Error,
    ];

    pub(super) fn of_verbs(number: u8) -> Option<Self> {
        Self::ALL.get(usize::from(number)).copied()
    }

    pub(super) fn number(self) -> u8 {
        self as u8
    }
}

/// Bits of `attr_mask`, `enum ib_qp_attr_mask`.
pub(super) mod mask {
    pub(in super::super) const STATE: u32 = 1 << 0;
    pub(in super::super) const CUR_STATE: u32 = 1 << 1;
    pub(in super::super) const EN_SQD_ASYNC_NOTIFY: u32 = 1 << 2;
    pub(in super::super) const ACCESS_FLAGS: u32 = 1 << 3;
    pub(in super::super) const PKEY_INDEX: u32 = 1 << 4;
    pub(in super::super) const PORT: u32 = 1 << 5;
    pub(in super::super) const QKEY: u32 = 1 << 6;
    pub(in super::super) const AV: u32 = 1 << 7;
    pub(in super::super) const PATH_MTU: u32 = 1 << 8;
    pub(in super::super) const TIMEOUT: u32 = 1 << 9;
    pub(in super::super) const RETRY_CNT: u32 = 1 << 10;
    pub(in super::super) const RNR_RETRY: u32 = 1 << 11;
    pub(in super::super) const RQ_PSN: u32 = 1 << 12;
    pub(in super::super) const MAX_QP_RD_ATOMIC: u32 = 1 << 13;
    pub(in super::super) const ALT_PATH: u32 = 1 << 14;
    pub(in super::super) const MIN_RNR_TIMER: u32 = 1 << 15;
    pub(in super::super) const SQ_PSN: u32 = 1 << 16;
    pub(in super::super) const MAX_DEST_RD_ATOMIC: u32 = 1 << 17;
    pub(in super::super) const PATH_MIG_STATE: u32 = 1 << 18;
    pub(in super::super) const CAP: u32 = 1 << 19;
    pub(in super::super) const DEST_QPN: u32 = 1 << 20;
    /// All attributes that both forms of the command know.
    pub(in super::super) const STANDARD: u32 = (1 << 21) - 1;
    pub(in super::super) const RATE_LIMIT: u32 = 1 << 25;
}

/// Returns the attributes that a transition needs and those that it allows; `None` if the transition does not exist.
fn attributes(current: State, next: State, kind: Kind) -> Option<(u32, u32)> {
    use mask::{
        ACCESS_FLAGS, ALT_PATH, AV, CUR_STATE, DEST_QPN, EN_SQD_ASYNC_NOTIFY, MAX_DEST_RD_ATOMIC,
        MAX_QP_RD_ATOMIC, MIN_RNR_TIMER, PATH_MIG_STATE, PATH_MTU, PKEY_INDEX, PORT, QKEY,
        RETRY_CNT, RNR_RETRY, RQ_PSN, SQ_PSN, TIMEOUT,
    };
    use {Kind::*, State::*};
    // A QP may go to reset from every state, and to error from every state but reset.
    if next == Reset || (next == Error && current != Reset) {
        return Some((0, 0));
    }
    let basics = PKEY_INDEX | PORT | if kind == Ud { QKEY } else { ACCESS_FLAGS };
    let responds = matches!(kind, Rc | XrcTarget);
    let requests = matches!(kind, Rc | XrcInitiator);
    let when = |condition: bool, bits: u32| if condition { bits } else { 0 };
    // These attributes are allowed in all transitions to ready-to-send of connected services.
    let connected =
        CUR_STATE | ALT_PATH | ACCESS_FLAGS | PATH_MIG_STATE | when(responds, MIN_RNR_TIMER);
    let datagrams = CUR_STATE | QKEY;
    Some(match (current, next) {
        (Reset, Init) => (basics, 0),
        (Init, Init) => (0, basics),
        (Init, Rtr) if kind == Ud => (0, PKEY_INDEX | QKEY),
        (Init, Rtr) => (
            AV | PATH_MTU | DEST_QPN | RQ_PSN | when(responds, MAX_DEST_RD_ATOMIC | MIN_RNR_TIMER),
            ALT_PATH | ACCESS_FLAGS | PKEY_INDEX,
        ),
        (Rtr, Rts) if kind == Ud => (SQ_PSN, datagrams),
        (Rtr, Rts) => (
            SQ_PSN
                | when(kind != Uc, TIMEOUT)
                | when(requests, RETRY_CNT | RNR_RETRY | MAX_QP_RD_ATOMIC),
            connected,
        ),
        (Rts | Sqd, Rts) if kind == Ud => (0, datagrams),
        (Rts | Sqd, Rts) => (0, connected),
        (Rts, Sqd) => (0, EN_SQD_ASYNC_NOTIFY),
        (Sqd, Sqd) => match kind {
            Ud => (0, PKEY_INDEX | QKEY),
            Uc => (
                0,
                AV | ALT_PATH | ACCESS_FLAGS | PKEY_INDEX | PATH_MIG_STATE,
            ),
            _ => (
                0,
                PORT | AV
                    | TIMEOUT
                    | ALT_PATH
                    | ACCESS_FLAGS
                    | PKEY_INDEX
                    | PATH_MIG_STATE
                    | when(requests, RETRY_CNT | RNR_RETRY | MAX_QP_RD_ATOMIC)
                    | when(responds, MAX_DEST_RD_ATOMIC | MIN_RNR_TIMER),
            ),
        },
        (Sqe, Rts) => match kind {
            Ud => (0, datagrams),
            Uc => (0, CUR_STATE | ACCESS_FLAGS),
            _ => (0, 0),
        },
        _ => return None,
    })
}

/// Returns the attributes that the kernel looks at. Programs treat XRC like RC, and name attributes that only the other end has
/// (`modify_qp_mask`).
pub(super) fn heeded(kind: Kind, given: u32) -> u32 {
    match kind {
        Kind::XrcInitiator => given & !(mask::MAX_DEST_RD_ATOMIC | mask::MIN_RNR_TIMER),
        Kind::XrcTarget => given & !(mask::MAX_QP_RD_ATOMIC | mask::RETRY_CNT | mask::RNR_RETRY),
        _ => given,
    }
}

/// Returns whether the transition exists, and `given` has all attributes that it needs and none that it does not allow.
pub(super) fn is_allowed(current: State, next: State, kind: Kind, given: u32) -> bool {
    use State::{Rtr, Rts, Sqd, Sqe};
    if given & mask::CUR_STATE != 0 && !matches!(current, Rtr | Rts | Sqd | Sqe) {
        return false;
    }
    attributes(current, next, kind).is_some_and(|(needed, allowed)| {
        given & needed == needed && given & !(needed | allowed | mask::STATE) == 0
    })
}

/// Returns the command for a transition, if mlx5 has one.
pub(super) fn command(current: State, next: State) -> Option<Opcode> {
    use State::{Error, Init, Reset, Rtr, Rts, Sqd, Sqe};
    Some(match (current, next) {
        (_, Reset) => Opcode::TO_RST_QP,
        (_, Error) => Opcode::TO_ERR_QP,
        (Reset, Init) => Opcode::RST2INIT_QP,
        (Init, Init) => Opcode::INIT2INIT_QP,
        (Init, Rtr) => Opcode::INIT2RTR_QP,
        (Rtr, Rts) => Opcode::RTR2RTS_QP,
        (Rts, Rts) => Opcode::RTS2RTS_QP,
        (Rts, Sqd) => Opcode::RTS2SQD_QP,
        (Sqd, Rts) => Opcode::SQD_RTS_QP,
        (Sqe, Rts) => Opcode::SQERR2RTS_QP,
        _ => return None,
    })
}

/// Returns the optional parameters of the command: those of the given attributes, as far as the transition has them.
pub(super) fn optional_parameters(current: State, next: State, kind: Kind, given: u32) -> u32 {
    optional_of(given) & optional_in(current, next, kind)
}

/// Returns the optional parameters of the given attributes (`ib_mask_to_mlx5_opt` in Linux).
fn optional_of(given: u32) -> u32 {
    let table = [
        (mask::PATH_MIG_STATE, QpModifyIn::OPT_PM_STATE),
        (
            mask::ACCESS_FLAGS,
            QpModifyIn::OPT_RWE | QpModifyIn::OPT_RRE | QpModifyIn::OPT_RAE,
        ),
        (mask::PKEY_INDEX, QpModifyIn::OPT_PKEY_INDEX),
        (mask::QKEY, QpModifyIn::OPT_Q_KEY),
        (mask::AV, QpModifyIn::OPT_PRIMARY_ADDR_PATH),
        (mask::TIMEOUT, QpModifyIn::OPT_ACK_TIMEOUT),
        (mask::RETRY_CNT, QpModifyIn::OPT_RETRY_COUNT),
        (mask::RNR_RETRY, QpModifyIn::OPT_RNR_RETRY),
        (mask::MAX_QP_RD_ATOMIC, QpModifyIn::OPT_SRA_MAX),
        (mask::ALT_PATH, QpModifyIn::OPT_ALT_ADDR_PATH),
        (mask::MIN_RNR_TIMER, QpModifyIn::OPT_RNR_TIMEOUT),
        (
            mask::MAX_DEST_RD_ATOMIC,
            QpModifyIn::OPT_RRA_MAX | QpModifyIn::OPT_RRE | QpModifyIn::OPT_RAE,
        ),
        (mask::PORT, OPT_PRIMARY_PORT),
    ];
    table
        .iter()
        .filter(|(bit, _)| given & bit != 0)
        .fold(0, |all, (_, parameters)| all | parameters)
}

/// Bit of the optional parameter for the port of the primary path.
const OPT_PRIMARY_PORT: u32 = 1 << 16;

/// Returns the optional parameters that a transition has (`opt_mask` in Linux).
fn optional_in(current: State, next: State, kind: Kind) -> u32 {
    use State::{Init, Rtr, Rts, Sqd, Sqe};
    const RIGHTS: u32 = QpModifyIn::OPT_RRE | QpModifyIn::OPT_RAE | QpModifyIn::OPT_RWE;
    let rights = match kind {
        Kind::Rc | Kind::XrcInitiator | Kind::XrcTarget => RIGHTS,
        Kind::Uc => QpModifyIn::OPT_RWE,
        Kind::Ud => QpModifyIn::OPT_Q_KEY,
    };
    let reliable = matches!(kind, Kind::Rc | Kind::XrcInitiator | Kind::XrcTarget);
    let connected = |bits: u32| if kind == Kind::Ud { 0 } else { bits };
    let rnr = if reliable {
        QpModifyIn::OPT_RNR_TIMEOUT
    } else {
        0
    };
    let migration = connected(QpModifyIn::OPT_PM_STATE | QpModifyIn::OPT_ALT_ADDR_PATH);
    match (current, next) {
        (Init, Init) => rights | QpModifyIn::OPT_PKEY_INDEX | OPT_PRIMARY_PORT,
        (Init, Rtr) => {
            rights | QpModifyIn::OPT_PKEY_INDEX | connected(QpModifyIn::OPT_ALT_ADDR_PATH)
        }
        (Rtr | Rts, Rts) => rights | rnr | migration,
        (Sqd | Sqe, Rts) => rights | rnr,
        _ => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use State::{Error, Init, Reset, Rtr, Rts, Sqd, Sqe};

    const RC_INIT: u32 = mask::STATE | mask::PKEY_INDEX | mask::PORT | mask::ACCESS_FLAGS;
    const RC_RTR: u32 = mask::STATE
        | mask::AV
        | mask::PATH_MTU
        | mask::DEST_QPN
        | mask::RQ_PSN
        | mask::MAX_DEST_RD_ATOMIC
        | mask::MIN_RNR_TIMER;
    const RC_RTS: u32 = mask::STATE
        | mask::TIMEOUT
        | mask::RETRY_CNT
        | mask::RNR_RETRY
        | mask::SQ_PSN
        | mask::MAX_QP_RD_ATOMIC;

    #[test]
    fn the_usual_way_of_a_connection_is_allowed() {
        for (current, next, given) in [
            (Reset, Init, RC_INIT),
            (Init, Rtr, RC_RTR),
            (Rtr, Rts, RC_RTS),
        ] {
            assert!(is_allowed(current, next, Kind::Rc, given), "{next:?}");
            // Each attribute is needed.
            for bit in (0..21).map(|bit| 1 << bit).filter(|bit| given & bit != 0) {
                let enough = is_allowed(current, next, Kind::Rc, given & !bit);
                assert_eq!(enough, bit == mask::STATE, "{next:?} without {bit:#x}");
            }
        }
    }

    #[test]
    fn both_ends_of_xrc_may_be_treated_like_rc() {
        for kind in [Kind::XrcInitiator, Kind::XrcTarget] {
            let rtr = heeded(kind, RC_RTR);
            assert!(is_allowed(Init, Rtr, kind, rtr), "{kind:?}");
            let rts = heeded(kind, RC_RTS);
            assert!(is_allowed(Rtr, Rts, kind, rts), "{kind:?}");
        }
        assert_eq!(heeded(Kind::Rc, RC_RTR | RC_RTS), RC_RTR | RC_RTS);
    }

    #[test]
    fn datagrams_need_a_key_and_no_path() {
        let init = mask::STATE | mask::PKEY_INDEX | mask::PORT | mask::QKEY;
        assert!(is_allowed(Reset, Init, Kind::Ud, init));
        assert!(!is_allowed(Reset, Init, Kind::Ud, RC_INIT));
        assert!(is_allowed(Init, Rtr, Kind::Ud, mask::STATE));
        assert!(!is_allowed(Init, Rtr, Kind::Ud, mask::STATE | mask::AV));
        assert!(is_allowed(Rtr, Rts, Kind::Ud, mask::STATE | mask::SQ_PSN));
    }

    #[test]
    fn states_that_do_not_follow_each_other_are_refused_with_any_attributes() {
        let follow = |current, next| {
            next == Reset
                || (next == Error && current != Reset)
                || matches!(
                    (current, next),
                    (Reset, Init)
                        | (Init, Init | Rtr)
                        | (Rtr, Rts)
                        | (Rts, Rts | Sqd)
                        | (Sqd, Rts | Sqd)
                        | (Sqe, Rts)
                )
        };
        for current in State::ALL {
            for next in State::ALL {
                let exists = attributes(current, next, Kind::Rc).is_some();
                assert_eq!(exists, follow(current, next), "{current:?} {next:?}");
                if !exists {
                    assert!(!is_allowed(current, next, Kind::Rc, mask::STANDARD));
                }
            }
        }
    }

    #[test]
    fn the_current_state_is_only_named_where_software_may_not_know_it() {
        for state in State::ALL {
            let allowed = is_allowed(state, Rts, Kind::Rc, RC_RTS | mask::CUR_STATE);
            assert_eq!(allowed, state == Rtr, "{state:?}");
        }
    }

    #[test]
    fn every_transition_that_is_allowed_has_a_command_but_that_within_sqd() {
        for current in State::ALL {
            for next in State::ALL {
                if attributes(current, next, Kind::Rc).is_some() {
                    let command = command(current, next);
                    assert_eq!(command.is_none(), (current, next) == (Sqd, Sqd));
                }
            }
        }
    }

    #[test]
    fn rights_of_readers_come_with_their_number() {
        let optional = optional_parameters(Init, Rtr, Kind::Rc, RC_RTR);
        assert_eq!(optional, QpModifyIn::OPT_RRE | QpModifyIn::OPT_RAE);
        let optional = optional_parameters(Rts, Rts, Kind::Ud, mask::STATE | mask::QKEY);
        assert_eq!(optional, QpModifyIn::OPT_Q_KEY);
    }
}
