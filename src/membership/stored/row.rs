//! The row of a rank, which says what it knows of the others, as the store holds it.

use membership_rules::look::Row;
use membership_rules::members::Members;
use membership_rules::record::RankGeneration;
use membership_rules::slots::Slots;
use serde::{Deserialize, Serialize};

use super::error::Unreadable;
use super::sets::{Field, read, set_text, table_text};

/// What a rank says of the others, as a value.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(in crate::membership) struct StoredRow {
    /// Number of slots of the team.
    pub(in crate::membership) slots: u32,
    /// The view in which `unheard`, `broken`, `overdue`, `ended` and `behind` hold; 0 if all of them are empty. In another view they mean
    /// nothing, because its slots may have other holders.
    pub(in crate::membership) epoch: u32,
    /// How often the rank has taken its lease.
    pub(in crate::membership) takings: u32,
    /// The last call of a leaver, if the rank has made all calls up to it.
    pub(in crate::membership) through: Option<u32>,
    pub(in crate::membership) unheard: Slots,
    pub(in crate::membership) broken: Slots,
    pub(in crate::membership) overdue: Slots,
    pub(in crate::membership) meets: Slots,
    pub(in crate::membership) ended: Slots,
    pub(in crate::membership) behind: bool,
    /// Number of calls of the rank's layer that found no free send buffer. The rules do not look at it.
    pub(in crate::membership) unbuffered: u32,
    /// The ranks with which this one is connected, with their generations: the next holder of a slot is another rank.
    pub(in crate::membership) connected: Members,
    /// For each slot that members hold back, how many of its newcomers came to nothing one after the other.
    pub(in crate::membership) held: Members,
    /// Ranks to which this one has QPs that carry nothing yet: newcomers for a member, and members for a newcomer. A write on some of these
    /// QPs had no answer for longer than HCAs try.
    pub(in crate::membership) unproven: Members,
}

impl StoredRow {
    /// Returns the row as the rules see it in the view `epoch`. `named` says whether the record names a generation for its slot.
    pub(in crate::membership) fn row(
        &self,
        epoch: u32,
        named: impl Fn(RankGeneration) -> bool,
    ) -> Row {
        let connected = self.connected.iter().filter(|who| named(*who));
        let unproven = self.unproven.iter().filter(|who| named(*who));
        let of_view = |slots: &Slots| match self.epoch == epoch {
            true => slots.clone(),
            false => Slots::default(),
        };
        Row {
            unheard: of_view(&self.unheard),
            broken: of_view(&self.broken),
            overdue: of_view(&self.overdue),
            meets: self.meets.clone(),
            connected: connected.map(|(slot, _)| slot).collect(),
            unproven: unproven.map(|(slot, _)| slot).collect(),
            ended: of_view(&self.ended),
            behind: self.behind && self.epoch == epoch,
        }
    }
}

/// The row as a JSON object.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Text {
    slots: u32,
    takings: u32,
    #[serde(default, skip_serializing_if = "is_zero")]
    epoch: u32,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    through: Option<u32>,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    unheard: String,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    broken: String,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    overdue: String,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    meets: String,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    ended: String,
    #[serde(default, skip_serializing_if = "is_false")]
    behind: bool,
    #[serde(default, skip_serializing_if = "is_zero")]
    unbuffered: u32,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    connected: String,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    held: String,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    unproven: String,
}

fn is_zero(number: &u32) -> bool {
    *number == 0
}

fn is_false(flag: &bool) -> bool {
    !flag
}

/// Returns the value of the row's key.
pub(in crate::membership) fn row_text(row: &StoredRow) -> Vec<u8> {
    let slots = row.slots;
    let text = Text {
        slots,
        takings: row.takings,
        epoch: row.epoch,
        through: row.through,
        unheard: set_text(&row.unheard, slots),
        broken: set_text(&row.broken, slots),
        overdue: set_text(&row.overdue, slots),
        meets: set_text(&row.meets, slots),
        ended: set_text(&row.ended, slots),
        behind: row.behind,
        unbuffered: row.unbuffered,
        connected: table_text(row.connected.iter(), slots),
        held: table_text(row.held.iter(), slots),
        unproven: table_text(row.unproven.iter(), slots),
    };
    serde_json::to_vec(&text).expect("numbers and text")
}

/// Returns the row that `value` holds, of a team of `slots`.
pub(in crate::membership) fn parse_row(value: &[u8], slots: u32) -> Result<StoredRow, Unreadable> {
    let text = read(value, slots, |text: &Text| text.slots)?;
    let field = |name| Field { name, slots };
    Ok(StoredRow {
        slots,
        epoch: text.epoch,
        takings: text.takings,
        through: text.through,
        unheard: field("unheard").set(&text.unheard)?,
        broken: field("broken").set(&text.broken)?,
        overdue: field("overdue").set(&text.overdue)?,
        meets: field("meets").set(&text.meets)?,
        ended: field("ended").set(&text.ended)?,
        behind: text.behind,
        unbuffered: text.unbuffered,
        connected: field("connected").generations(&text.connected)?,
        held: field("held").generations(&text.held)?,
        unproven: field("unproven").generations(&text.unproven)?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_is_read_as_it_was_written() {
        let set = |slots: &[u32]| -> Slots { slots.iter().copied().collect() };
        let row = StoredRow {
            slots: 70,
            epoch: u32::MAX,
            takings: 3,
            through: Some(0),
            unheard: set(&[0]),
            broken: set(&[1, 2, 69]),
            overdue: set(&[3]),
            meets: (0..70).collect(),
            ended: set(&[4]),
            behind: true,
            unbuffered: u32::MAX,
            connected: [(5, 2), (69, u32::MAX)].into(),
            held: [(6, 3)].into(),
            unproven: [(7, 3)].into(),
        };
        let text = row_text(&row);
        assert_eq!(parse_row(&text, 70).unwrap(), row);
        let text = String::from_utf8(text).unwrap();
        assert!(
            text.contains("\"behind\":true,\"unbuffered\":4294967295,\"connected\":\"5,69=2,4294967295\",\"held\":\"6=3\",\"unproven\":\"7=3\""),
            "{text}"
        );
        let quiet = StoredRow {
            slots: 70,
            takings: 1,
            ..StoredRow::default()
        };
        let text = row_text(&quiet);
        assert_eq!(text, b"{\"slots\":70,\"takings\":1}");
        assert_eq!(parse_row(&text, 70).unwrap(), quiet);
    }

    #[test]
    fn a_row_that_cannot_be_is_refused_by_name() {
        let refused = |more: &str, slots: u32| {
            let text = format!("{{\"slots\":9,\"takings\":1{more}}}");
            let refused = parse_row(text.as_bytes(), slots).unwrap_err();
            refused.to_string()
        };
        assert_eq!(refused("", 8), "it is of 9 slots; there are 8");
        assert!(refused(",\"mets\":\"\"", 9).starts_with("unknown field `mets`"));
        for name in ["unheard", "broken", "overdue", "meets", "ended"] {
            let more = format!(",\"{name}\":\"9\"");
            assert_eq!(refused(&more, 9), format!("{name}: slot 9; there are 9"));
        }
        let connected = ",\"connected\":\"1=0\"";
        assert_eq!(refused(connected, 9), "connected: generation 0 of slot 1");
        assert!(matches!(parse_row(b"{", 9), Err(Unreadable::Json(_))));
    }

    #[test]
    fn what_a_row_has_said_is_shown_as_one_plain_line() {
        const TEXT: &str = "a\\nERROR\\u001b[2J\\u202e\\u0085";
        for row in [
            format!("{{\"{TEXT}\":1}}"),
            format!("{{\"slots\":\"{TEXT}\"}}"),
            format!("{{\"slots\":9,\"unheard\":\"{TEXT}\"}}"),
            format!("{{\"slots\":9,\"connected\":\"{TEXT}\"}}"),
        ] {
            let shown = parse_row(row.as_bytes(), 9).unwrap_err().to_string();
            assert_eq!(shown, rendezvous::printable(&shown), "{row}");
        }
    }
}
