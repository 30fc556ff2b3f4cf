//! How long QPs try before they give a peer up.

use crate::config::PathConfig;
use crate::verbs::SendAttr;

/// Retransmission timeout on the software HCA, 4.096 us · 2^17 = 0.5 s: the process behind it may wait for a core.
const SOFT_ACK_TIMEOUT: u8 = 17;

/// How long the QPs of a rail try, as `path` says, or as fits an HCA that is software if `soft`.
pub(crate) fn patience(path: &PathConfig, soft: bool) -> SendAttr {
    let default = SendAttr::new(0);
    let timeout = match soft {
        true => SOFT_ACK_TIMEOUT,
        false => default.timeout,
    };
    SendAttr {
        timeout: path.ack_timeout.unwrap_or(timeout),
        retry: path.retry_count,
        rnr_retry: path.rnr_retry,
        ..default
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
