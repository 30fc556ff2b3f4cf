//! How long QPs try before they give up a peer.

use std::time::Duration;

use crate::config::PathConfig;
use crate::verbs::SendAttr;

/// Retransmission timeout on the software HCA, 4.096 us · 2^17 = 0.5 s. It is long because the process of the HCA may have to wait for a
/// core.
const SOFT_ACK_TIMEOUT: u8 = 17;
/// The shortest round of the software HCA, whatever its timeout (`softhca::wire::timer`).
const SOFT_ROUND: Duration = Duration::from_millis(500);

/// Returns how long the QPs of a rail try: as `path` says, or else as fits a software HCA if `soft`.
pub(crate) fn patience(path: &PathConfig, soft: bool) -> SendAttr {
    let default = SendAttr::new(0);
    let timeout = if soft {
        SOFT_ACK_TIMEOUT
    } else {
        default.timeout
    };
    SendAttr {
        timeout: path.ack_timeout.unwrap_or(timeout),
        retry: path.retry_count,
        rnr_retry: path.rnr_retry,
        ..default
    }
}

/// Returns the longest time for which an HCA with the setting `send` may try before it gives up a peer. The InfiniBand specification lets
/// an HCA take up to four times the timeout. The software HCA keeps to the timeout, but each of its rounds takes half a second at least.
pub(crate) fn longest(send: &SendAttr, soft: bool) -> Duration {
    if soft {
        send.patience()
            .max(SOFT_ROUND * (u32::from(send.retry) + 1))
    } else {
        send.patience().saturating_mul(4)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_hca_may_try_four_times_its_timeout() {
        let send = patience(&PathConfig::default(), false);
        let told = Duration::from_nanos(8 * (4096 << 14));
        assert_eq!(longest(&send, false), 4 * told);
    }

    #[test]
    fn a_software_hca_tries_as_long_as_its_own_timer_says() {
        for timeout in 12..=20 {
            for retry in 0..=7 {
                let path = PathConfig::default().with_ack_timeout(Some(timeout));
                let send = patience(&path.with_retry_count(retry), true);
                let timer = softhca::wire::timer::patience_ns(timeout, retry).unwrap();
                assert_eq!(longest(&send, true), Duration::from_nanos(timer));
            }
        }
    }

    #[test]
    fn qps_try_as_long_as_the_configuration_says() {
        let path = PathConfig::default();
        let of = |path: &PathConfig, soft| {
            let send = patience(path, soft);
            (send.timeout, send.retry, send.rnr_retry)
        };
        assert_eq!(
            (of(&path, false), of(&path, true)),
            ((14, 7, 7), (17, 7, 7))
        );
        let short = path.with_ack_timeout(Some(12)).with_retry_count(0);
        assert_eq!(of(&short.with_rnr_retry(1), true), (12, 0, 1));
    }
}
