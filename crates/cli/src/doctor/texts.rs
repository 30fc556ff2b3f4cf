//! The texts of all checks.

use super::check::{Check, Group, Text};
use super::{engine, gpu, machine, nic, pair, software, store};

/// Returns the texts of all checks, group by group.
pub(super) fn texts() -> Vec<(Group, Text)> {
    fn of<S: ?Sized>(group: Group, checks: &[Check<S>]) -> Vec<(Group, Text)> {
        checks.iter().map(|check| (group, check.text())).collect()
    }
    let mut all = of(Group::Software, software::CHECKS);
    all.extend(of(Group::Machine, machine::CHECKS));
    all.push((Group::Nic, nic::THERE));
    all.extend(of(Group::Nic, nic::CHECKS));
    all.push((Group::Nic, engine::TEXT));
    all.push((Group::Gpu, gpu::THERE));
    all.extend(of(Group::Gpu, gpu::CHECKS));
    all.extend(of(Group::Pair, pair::CHECKS));
    all.push((Group::Pair, pair::LOOPBACK));
    all.push((Group::Store, store::TEXT));
    all
}

/// Returns `id` if it is the id of a check, else an error that lists all ids.
pub(super) fn known(id: &str) -> Result<String, String> {
    let ids: Vec<&str> = texts().iter().map(|(_, text)| text.id).collect();
    if ids.contains(&id) {
        Ok(id.to_owned())
    } else {
        Err(format!("no check; the checks are {}", ids.join(", ")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn each_check_has_an_id_of_its_own_and_says_why_and_what_mends_it() {
        let mut ids = BTreeSet::new();
        for (group, text) in texts() {
            assert!(ids.insert(text.id), "{}", text.id);
            let is_word =
                |mark: char| mark.is_ascii_lowercase() || mark.is_ascii_digit() || mark == '-';
            assert!(text.id.chars().all(is_word), "{}", text.id);
            for said in [text.what, text.why, text.mend] {
                assert!(
                    said.len() > 2 && !said.contains("  "),
                    "{group:?} {}: {said}",
                    text.id
                );
            }
        }
    }
}
