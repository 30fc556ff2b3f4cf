//! The record of a group as it stands in the store.

use membership_rules::members::Members;
use membership_rules::record::{Proposal, Record};
use serde::{Deserialize, Serialize};

use super::error::Unreadable;
use super::sets::{Field, pairs_text, read, set_text, table_text, two_table_text};
use crate::config::MAX_RANKS;

/// The record as a JSON object.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Text {
    slots: u32,
    epoch: u32,
    first: u32,
    number: u64,
    asked: u32,
    members: String,
    /// The generations that were members and are none now: the newest of each slot that has no member.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    gone: String,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    left: String,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    parted: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    open: Option<OpenText>,
}

/// The proposal that is open.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct OpenText {
    by: u32,
    keep: String,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    takes: String,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    leaves: String,
    /// The pairs in which the proposal and the view differ. So a pair that both part stands in the text once.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    changes: String,
}

/// Returns the value of the record's key, in a team of `slots`.
pub(in crate::membership) fn record_text(record: &Record, slots: u32) -> Vec<u8> {
    let Record {
        epoch,
        members,
        parted,
        first,
        admitted,
        left,
        number,
        open,
        asked,
    } = record;
    let mut gone: Members = admitted.clone();
    gone.retain(|slot, _| !members.contains_key(slot));
    let open_text = |open: &Proposal| {
        let Proposal {
            by,
            keep,
            takes,
            leaves,
            parts,
        } = open;
        OpenText {
            by: *by,
            keep: set_text(keep, slots),
            takes: table_text(takes.iter(), slots),
            leaves: table_text(leaves.iter().map(|it| (*it.0, *it.1)), slots),
            changes: pairs_text(&parts.differing(parted), slots),
        }
    };
    let text = Text {
        slots,
        epoch: *epoch,
        first: *first,
        number: *number,
        asked: *asked,
        members: table_text(members.iter(), slots),
        gone: table_text(gone.iter(), slots),
        left: two_table_text(left, slots),
        parted: pairs_text(parted, slots),
        open: open.as_ref().map(open_text),
    };
    serde_json::to_vec(&text).expect("numbers and text")
}

/// Returns the record that `value` holds, of a team of `slots`. It is an error if no rank can have written it by these rules.
pub(in crate::membership) fn parse_record(value: &[u8], slots: u32) -> Result<Record, Unreadable> {
    let text = read(value, slots, |text: &Text| text.slots)?;
    let field = |name| Field { name, slots };
    let members = field("members").generations(&text.members)?;
    if text.epoch == 0 || text.epoch == u32::MAX || members.is_empty() {
        return Err(Unreadable::View {
            epoch: text.epoch,
            members: members.len(),
        });
    }
    let mut admitted = field("gone").generations(&text.gone)?;
    for (slot, generation) in members.iter() {
        if admitted.insert(slot, generation).is_some() {
            return Err(Unreadable::Twice {
                field: "gone",
                slot,
            });
        }
    }
    admitted.share(&members);
    let left = field("left").two_table(&text.left)?;
    if let Some((&slot, _)) = left.iter().find(|(_, (generation, _))| *generation == 0) {
        return Err(Unreadable::Generation {
            field: "left",
            slot,
        });
    }
    let parted = field("parted").pairs(&text.parted)?;
    let open = |open: OpenText| {
        Ok::<_, Unreadable>(Proposal {
            by: field("by").slot(open.by)?,
            keep: field("keep").set(&open.keep)?,
            takes: field("takes").generations(&open.takes)?,
            leaves: field("leaves").table(&open.leaves)?,
            parts: field("changes").pairs(&open.changes)?.differing(&parted),
        })
    };
    let record = Record {
        epoch: text.epoch,
        open: text.open.map(open).transpose()?,
        members,
        parted,
        first: text.first,
        admitted,
        left,
        number: text.number,
        asked: text.asked,
    };
    record.check()?;
    Ok(record)
}

/// Returns the record that `value` holds, and the number of slots that it names: like `parse_record`, for a team of any size.
pub(in crate::membership) fn parse_any_record(value: &[u8]) -> Result<(Record, u32), Unreadable> {
    #[derive(Deserialize)]
    struct Slots {
        slots: u32,
    }
    let text = serde_json::from_slice(value);
    let Slots { slots } = text.map_err(|error| Unreadable::Json(error.to_string()))?;
    if slots > MAX_RANKS {
        let refused = format!("it is of {slots} slots; a team has at most {MAX_RANKS}");
        return Err(Unreadable::Json(refused));
    }
    Ok((parse_record(value, slots)?, slots))
}

#[cfg(test)]
mod tests {
    use super::*;
    use membership_rules::record::Refused;
    use membership_rules::slots::Pairs;
    use rendezvous::MAX_VALUE;

    /// Returns a record in which all `slots` are members, some of a later generation.
    fn group(slots: u32) -> Record {
        let generation = |slot: u32| if slot.is_multiple_of(100) { 2 } else { 1 };
        Record::founded((0..slots).map(|slot| (slot, generation(slot))).collect())
    }

    #[test]
    fn a_record_says_itself_of_how_many_slots_it_is() {
        let mut text = record_text(&group(9), 9);
        assert_eq!(parse_any_record(&text), Ok((group(9), 9)));
        text = String::from_utf8(text)
            .unwrap()
            .replace("\"slots\":9", "\"slots\":4294967295")
            .replace("0-8", "0-4294967294")
            .into_bytes();
        let error = parse_any_record(&text).unwrap_err().to_string();
        assert!(error.starts_with("it is of 4294967295 slots"), "{error}");
        for text in ["", "{", "{}", "{\"slots\":-1}", "[9]"] {
            assert!(parse_any_record(text.as_bytes()).is_err(), "{text}");
        }
    }

    fn all_pairs(slots: u32, of: impl Fn(u32, u32) -> bool) -> Pairs {
        let mut pairs = Pairs::default();
        for b in 0..slots {
            for a in (0..b).filter(|a| of(*a, b)) {
                pairs.insert(a, b);
            }
        }
        pairs
    }

    #[test]
    fn a_record_is_read_as_it_was_written() {
        let mut record = group(130);
        for slot in [3, 64, 129] {
            record.members.remove(slot);
        }
        record.left = [(3, (1, 0)), (64, (1, u32::MAX))].into();
        record.parted.insert(5, 6);
        record.asked = u32::MAX;
        let text = |record: &Record| {
            let text = record_text(record, 130);
            assert_eq!(parse_record(&text, 130).unwrap(), *record);
            String::from_utf8(text).unwrap()
        };
        assert_eq!(
            text(&record),
            "{\"slots\":130,\"epoch\":1,\"first\":1,\"number\":0,\"asked\":4294967295,\
             \"members\":\"0-2,4-63,65-128=2,1*97,2,1*28\",\"gone\":\"3,64,129=1*3\",\"left\":\"3,64=1*2=0,4294967295\",\
             \"parted\":\"5/6\"}"
        );
        let mut parts = record.parted.clone();
        parts.insert(7, 128);
        parts.remove(5, 6);
        let keep = record.slots().without(&[0].into_iter().collect());
        let open = Proposal {
            by: 9,
            keep,
            takes: Members::from([(129, 2)]),
            leaves: [(0, 77)].into(),
            parts,
        };
        let open = record.propose(open).unwrap();
        let written = text(&open);
        assert!(written.contains("\"changes\":\"5/6;7/128\""), "{written}");
    }

    #[test]
    fn a_record_that_cannot_be_is_refused_by_name() {
        let refused = |field: &str, value: &str| {
            let text = record_text(&group(9), 9);
            let mut json: serde_json::Value = serde_json::from_slice(&text).unwrap();
            let value: serde_json::Value = serde_json::from_str(value).unwrap();
            json.as_object_mut()
                .unwrap()
                .insert(field.to_owned(), value);
            let text = serde_json::to_vec(&json).unwrap();
            parse_record(&text, 9).unwrap_err().to_string()
        };
        let cases = [
            ("slots", "8", "it is of 8 slots; there are 9"),
            ("epoch", "0", "view 0 of 9 members"),
            ("epoch", "4294967295", "view 4294967295 of 9 members"),
            ("members", "\"\"", "view 1 of 0 members"),
            ("members", "\"9=1\"", "members: slot 9; there are 9"),
            ("members", "\"0=0\"", "members: generation 0 of slot 0"),
            ("members", "\"x200=1\"", "members: slot 9; there are 9"),
            (
                "members",
                "\"x01=1\"",
                "members: 2 digits; a set of 9 slots has 3",
            ),
            ("gone", "\"0=1\"", "gone: slot 0 comes twice"),
            ("left", "\"0=0=1\"", "left: generation 0 of slot 0"),
            ("parted", "\"0/9\"", "parted: slot 9; there are 9"),
            (
                "number",
                "9223372036854775808",
                "proposal 9223372036854775808; numbers are below 9223372036854775808",
            ),
            (
                "open",
                "{\"by\":9,\"keep\":\"0\"}",
                "by: slot 9; there are 9",
            ),
            (
                "open",
                "{\"by\":0,\"keep\":\"0-9\"}",
                "keep: slot 9; there are 9",
            ),
            (
                "open",
                "{\"by\":0,\"keep\":\"0\",\"takes\":\"1=0\"}",
                "takes: generation 0 of slot 1",
            ),
            (
                "open",
                "{\"by\":0,\"keep\":\"0\",\"changes\":\"0/1\"}",
                "it parts or lets go ranks 0 and 1, of which one does not stay or is no member",
            ),
        ];
        for (field, value, reason) in cases {
            assert_eq!(refused(field, value), reason, "{field} {value}");
        }
        assert!(refused("more", "1").starts_with("unknown field `more`"));
        assert!(refused("epoch", "-1").starts_with("invalid value"));
        let stranger = Refused::KeepsStranger(3);
        let mut few = group(9);
        few.members.remove(3);
        few.open = Some(Proposal {
            keep: group(9).slots(),
            ..Proposal::default()
        });
        let text = record_text(&few, 9);
        assert_eq!(parse_record(&text, 9), Err(Unreadable::Refused(stranger)));
    }

    /// A record of some thousand ranks with an open proposal is far smaller than the largest value of the store.
    #[test]
    fn records_of_4096_ranks_fit_into_a_value_whatever_pairs_are_parted() {
        for slots in [64, 1024, 4096] {
            let size = |what: &str, parted: Pairs, most: usize| {
                let mut record = group(slots);
                let keep = record.slots();
                record.parted.clone_from(&parted);
                let open = Proposal {
                    keep,
                    parts: parted,
                    ..Proposal::default()
                };
                let open = record.propose(open).unwrap();
                let text = record_text(&open, slots);
                eprintln!("{slots} ranks, {what}: {} bytes", text.len());
                assert!(text.len() <= most, "{slots} ranks, {what}: {}", text.len());
                assert_eq!(parse_record(&text, slots).unwrap(), open);
            };
            let slots_usize = slots as usize;
            size("nobody parted", Pairs::default(), 200 + slots_usize / 8);
            size(
                "all parted",
                all_pairs(slots, |_, _| true),
                250 + slots_usize / 8,
            );
            let halves = all_pairs(slots, |a, b| a < slots / 2 && b >= slots / 2);
            size("two halves", halves, 250 + slots_usize / 8);
            let tenth = all_pairs(slots, |a, b| a.is_multiple_of(10) || b.is_multiple_of(10));
            size("a tenth parted from all", tenth, 5 * slots_usize + 400);
            let mut random = fastrand::Rng::with_seed(1);
            let (pairs, ranks) = (10 * slots, 0..slots);
            let mut some = Pairs::default();
            for _ in 0..pairs {
                some.insert(random.u32(ranks.clone()), random.u32(ranks.clone()));
            }
            size(
                "20 of each at random",
                some,
                (MAX_VALUE / 2).min(slots_usize * 80),
            );
        }
    }
}
