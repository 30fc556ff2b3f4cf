//! Writes and reads sets of slots, numbers of slots and pairs of slots as text.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use membership_rules::members::Members;
use membership_rules::slots::{Pairs, Slots};
use serde::de::DeserializeOwned;

use super::error::Unreadable;

/// A writer of pairs compares a rank with this many of the newest groups to find one that the rank belongs to.
const GROUPS: usize = 8;

/// Reads `value` as an object of a team of `slots` ranks. `slots_of` is the number of slots that its writer's team has.
pub(super) fn read<T: DeserializeOwned>(
    value: &[u8],
    slots: u32,
    slots_of: impl Fn(&T) -> u32,
) -> Result<T, Unreadable> {
    let object: T =
        serde_json::from_slice(value).map_err(|error| Unreadable::Json(error.to_string()))?;
    match slots_of(&object) {
        found if found != slots => Err(Unreadable::Slots { found, slots }),
        _ => Ok(object),
    }
}

/// The name of a field and the size of its team, for which text is read.
#[derive(Clone, Copy, Debug)]
pub(super) struct Field {
    pub(super) name: &'static str,
    /// Number of slots of the team.
    pub(super) slots: u32,
}

/// Returns the text of a set of slots below `slots`.
pub(super) fn set_text(set: &Slots, slots: u32) -> String {
    let digits = slots.div_ceil(4) as usize;
    let mut text = String::new();
    for (first, last) in set.runs() {
        let comma = if text.is_empty() { "" } else { "," };
        let _ = if last == first {
            write!(text, "{comma}{first}")
        } else {
            write!(text, "{comma}{first}-{last}")
        };
        if text.len() > 1 + digits {
            return bits_text(set, digits);
        }
    }
    text
}

fn bits_text(set: &Slots, digits: usize) -> String {
    let mut values = vec![0u8; digits];
    for slot in set.iter() {
        values[digits - 1 - slot as usize / 4] |= 1 << (slot % 4);
    }
    let digit = |value: u8| char::from_digit(value.into(), 16).unwrap_or('0');
    std::iter::once('x')
        .chain(values.into_iter().map(digit))
        .collect()
}

/// Returns the text of the numbers of a set's slots, in the order of the slots.
fn numbers_text(numbers: impl Iterator<Item = u32>) -> String {
    let mut text = String::new();
    let mut numbers = numbers.peekable();
    while let Some(number) = numbers.next() {
        let mut times = 1;
        while numbers.next_if_eq(&number).is_some() {
            times += 1;
        }
        let comma = if text.is_empty() { "" } else { "," };
        let _ = match times {
            1 => write!(text, "{comma}{number}"),
            _ => write!(text, "{comma}{number}*{times}"),
        };
    }
    text
}

/// Returns the text of a table with one number for each slot.
pub(super) fn table_text(table: impl Iterator<Item = (u32, u32)> + Clone, slots: u32) -> String {
    let set: Slots = table.clone().map(|(slot, _)| slot).collect();
    if set.is_empty() {
        return String::new();
    }
    let numbers = numbers_text(table.map(|(_, number)| number));
    format!("{}={numbers}", set_text(&set, slots))
}

/// Returns the text of a table with two numbers for each slot.
pub(super) fn two_table_text(table: &BTreeMap<u32, (u32, u32)>, slots: u32) -> String {
    if table.is_empty() {
        return String::new();
    }
    let set = set_text(&table.keys().copied().collect(), slots);
    let first = numbers_text(table.values().map(|it| it.0));
    format!(
        "{set}={first}={}",
        numbers_text(table.values().map(|it| it.1))
    )
}

/// Returns the text of pairs of slots below `slots`. Ranks that are parted from the same others stand together: two sides of a partition,
/// or all ranks without a path, are one group.
pub(super) fn pairs_text(pairs: &Pairs, slots: u32) -> String {
    let mut groups: Vec<(Slots, Slots)> = Vec::new();
    for (rank, ends) in pairs.rows() {
        let higher = ends.behind(rank);
        if higher.is_empty() {
            continue;
        }
        let mut newest = groups.iter_mut().rev().take(GROUPS);
        match newest.find(|(_, others)| others.behind(rank) == higher) {
            Some((ranks, _)) => ranks.insert(rank),
            None => groups.push(([rank].into_iter().collect(), higher)),
        }
    }
    let text = |(ranks, others): &(Slots, Slots)| {
        format!("{}/{}", set_text(ranks, slots), set_text(others, slots))
    };
    let texts: Vec<String> = groups.iter().map(text).collect();
    texts.join(";")
}

impl Field {
    fn form(&self, found: &str, form: &'static str) -> Unreadable {
        Unreadable::Form {
            field: self.name,
            found: Unreadable::shown(found),
            form,
        }
    }

    fn number(&self, text: &str) -> Result<u32, Unreadable> {
        let plain = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
        let number = text.parse().ok().filter(|_| plain);
        number.ok_or_else(|| Unreadable::Number {
            field: self.name,
            found: Unreadable::shown(text),
        })
    }

    /// Returns `slot`, or an error if the team does not have it.
    pub(super) fn slot(&self, slot: u32) -> Result<u32, Unreadable> {
        if slot < self.slots {
            Ok(slot)
        } else {
            Err(Unreadable::Slot {
                field: self.name,
                slot,
                slots: self.slots,
            })
        }
    }

    pub(super) fn set(&self, text: &str) -> Result<Slots, Unreadable> {
        if let Some(digits) = text.strip_prefix('x') {
            return self.bits(digits);
        }
        let mut set = Slots::default();
        let mut before: Option<u32> = None;
        for run in text.split(',').filter(|_| !text.is_empty()) {
            let (first, last) = run.split_once('-').unwrap_or((run, run));
            let [first, last] = [self.number(first)?, self.number(last)?];
            let ends = [(first, before), (last, first.checked_sub(1))];
            for (slot, before) in ends {
                if let Some(before) = before.filter(|before| slot <= *before) {
                    return Err(Unreadable::Order {
                        field: self.name,
                        slot,
                        before,
                    });
                }
            }
            self.slot(last)?;
            set.insert_run(first, last);
            before = Some(last);
        }
        Ok(set)
    }

    fn bits(&self, text: &str) -> Result<Slots, Unreadable> {
        let digits = self.slots.div_ceil(4) as usize;
        if text.len() != digits {
            return Err(Unreadable::Length {
                field: self.name,
                found: text.len(),
                digits,
                slots: self.slots,
            });
        }
        let mut set = Slots::default();
        for (place, digit) in (0u32..).zip(text.bytes().rev()) {
            let value = char::from(digit).to_digit(16);
            let value = value.ok_or_else(|| Unreadable::Digits {
                field: self.name,
                found: Unreadable::shown(text),
            })?;
            for bit in (0..4).filter(|bit| value >> bit & 1 == 1) {
                set.insert(self.slot(4 * place + bit)?);
            }
        }
        Ok(set)
    }

    fn numbers(&self, text: &str, set: &Slots) -> Result<Vec<u32>, Unreadable> {
        let slots = set.len();
        let mut numbers = Vec::new();
        let mut found = 0u64;
        for run in text.split(',').filter(|_| !text.is_empty()) {
            let (number, times) = run.split_once('*').unwrap_or((run, "1"));
            let [number, times] = [self.number(number)?, self.number(times)?];
            found += u64::from(times);
            if found > slots.into() {
                break;
            }
            numbers.extend(std::iter::repeat_n(number, times as usize));
        }
        if found == u64::from(slots) {
            Ok(numbers)
        } else {
            Err(Unreadable::Numbers {
                field: self.name,
                found,
                slots,
            })
        }
    }

    pub(super) fn table<T>(&self, text: &str) -> Result<T, Unreadable>
    where
        T: Default + FromIterator<(u32, u32)>,
    {
        if text.is_empty() {
            return Ok(T::default());
        }
        let parts: Vec<&str> = text.split('=').collect();
        let [set, numbers] = parts[..] else {
            return Err(self.form(text, "SET=NUMBERS"));
        };
        let set = self.set(set)?;
        Ok(set.iter().zip(self.numbers(numbers, &set)?).collect())
    }

    /// Reads a table of generations. A generation of 0 is an error.
    pub(super) fn generations(&self, text: &str) -> Result<Members, Unreadable> {
        let all: Members = self.table(text)?;
        let odd = all.iter().find(|(_, generation)| *generation == 0);
        if let Some((slot, _)) = odd {
            return Err(Unreadable::Generation {
                field: self.name,
                slot,
            });
        }
        Ok(all)
    }

    pub(super) fn two_table(&self, text: &str) -> Result<BTreeMap<u32, (u32, u32)>, Unreadable> {
        if text.is_empty() {
            return Ok(BTreeMap::new());
        }
        let parts: Vec<&str> = text.split('=').collect();
        let [set, first, second] = parts[..] else {
            return Err(self.form(text, "SET=NUMBERS=NUMBERS"));
        };
        let set = self.set(set)?;
        let numbers = self
            .numbers(first, &set)?
            .into_iter()
            .zip(self.numbers(second, &set)?);
        Ok(set.iter().zip(numbers).collect())
    }

    pub(super) fn pairs(&self, text: &str) -> Result<Pairs, Unreadable> {
        let mut pairs = Pairs::default();
        // Each slot may be in one first set only. That bounds the work too: a text of 1 MiB could name all pairs again and again.
        let mut seen = Slots::default();
        for group in text.split(';').filter(|_| !text.is_empty()) {
            let sides = group.split_once('/');
            let (ranks, others) = sides.ok_or_else(|| self.form(group, "SET/SET"))?;
            let (ranks, others) = (self.set(ranks)?, self.set(others)?);
            if let Some(slot) = ranks.and(&seen).first() {
                return Err(Unreadable::Twice {
                    field: self.name,
                    slot,
                });
            }
            seen.add(&ranks);
            for rank in ranks.iter() {
                for other in others.behind(rank).iter() {
                    pairs.insert(rank, other);
                }
            }
        }
        Ok(pairs)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn field(slots: u32) -> Field {
        Field { name: "it", slots }
    }

    fn set(slots: impl IntoIterator<Item = u32>) -> Slots {
        slots.into_iter().collect()
    }

    fn refused<T: std::fmt::Debug>(read: Result<T, Unreadable>) -> String {
        read.unwrap_err().to_string()
    }

    #[test]
    fn a_set_is_written_in_the_shorter_form_and_read_as_the_same_set() {
        let text = |set: Slots, slots: u32| {
            let text = set_text(&set, slots);
            assert_eq!(field(slots).set(&text).unwrap(), set, "{text}");
            text
        };
        assert_eq!(text(set([]), 64), "");
        assert_eq!(text(set([5]), 64), "5");
        assert_eq!(
            text(set((0..7).chain([8]).chain(10..4096)), 4096),
            "0-6,8,10-4095"
        );
        assert_eq!(text(set([0, 2, 4, 6, 8]), 9), "x155");
        let odd = text(set((0..4096).filter(|slot| slot % 2 == 1)), 4096);
        assert_eq!(odd, format!("x{}", "a".repeat(1024)));
        for slots in [1, 4, 5, 63, 64, 65, 4096, 65_536] {
            text(set([slots - 1]), slots);
            text(set(0..slots), slots);
        }
    }

    #[test]
    fn a_set_that_cannot_be_is_refused_by_name() {
        let cases = [
            ("9", "it: slot 9; there are 9"),
            ("0-9", "it: slot 9; there are 9"),
            ("4294967295", "it: slot 4294967295; there are 9"),
            (
                "4294967296",
                "it: '4294967296' is no number up to 4294967295",
            ),
            ("-1", "it: '' is no number up to 4294967295"),
            ("+1", "it: '+1' is no number up to 4294967295"),
            ("1,,2", "it: '' is no number up to 4294967295"),
            ("1,1", "it: slot 1 does not come after slot 1"),
            ("3-2", "it: slot 2 does not come after slot 2"),
            ("3-5,4-6", "it: slot 4 does not come after slot 5"),
            ("x", "it: 0 digits; a set of 9 slots has 3"),
            ("x01", "it: 2 digits; a set of 9 slots has 3"),
            ("x0001", "it: 4 digits; a set of 9 slots has 3"),
            ("x0g1", "it: '0g1' are no hexadecimal digits"),
            ("x200", "it: slot 9; there are 9"),
        ];
        for (text, reason) in cases {
            assert_eq!(refused(field(9).set(text)), reason, "{text}");
        }
        assert_eq!(field(9).set("x1FF").unwrap(), set(0..9));
    }

    #[test]
    fn numbers_stand_for_the_slots_of_their_set() {
        let table: Members = (0..9).map(|slot| (slot, 1 + slot / 4)).collect();
        let text = table_text(table.iter(), 9);
        assert_eq!(text, "0-8=1*4,2*4,3");
        assert_eq!(field(9).generations(&text).unwrap(), table);
        let two: BTreeMap<u32, (u32, u32)> = [(2, (1, u32::MAX)), (5, (1, 0))].into();
        let text = two_table_text(&two, 9);
        assert_eq!(text, "2,5=1*2=4294967295,0");
        assert_eq!(field(9).two_table(&text).unwrap(), two);
        let cases = [
            ("0-8", "it: '0-8' is not SET=NUMBERS"),
            ("1=1=1", "it: '1=1=1' is not SET=NUMBERS"),
            ("0,1=1", "it: 1 numbers for 2 slots"),
            ("0,1=1*3", "it: 3 numbers for 2 slots"),
            (
                "0,1=1*4294967295,1*4294967295",
                "it: 4294967295 numbers for 2 slots",
            ),
            ("0,1=", "it: 0 numbers for 2 slots"),
            ("0,1=1*0", "it: 0 numbers for 2 slots"),
            ("0,1=1,0", "it: generation 0 of slot 1"),
            ("0,9=1*2", "it: slot 9; there are 9"),
            ("=1", "it: 1 numbers for 0 slots"),
        ];
        for (text, reason) in cases {
            assert_eq!(refused(field(9).generations(text)), reason, "{text}");
        }
        assert_eq!(
            refused(field(9).two_table("0=1")),
            "it: '0=1' is not SET=NUMBERS=NUMBERS"
        );
        assert_eq!(
            refused(field(9).two_table("0=1=1,2")),
            "it: 2 numbers for 1 slots"
        );
    }

    #[test]
    fn pairs_of_ranks_that_are_parted_from_the_same_others_stand_together() {
        let text = |choose: &dyn Fn(u32, u32) -> bool, slots: u32| {
            let mut pairs = Pairs::default();
            for b in 0..slots {
                (0..b)
                    .filter(|a| choose(*a, b))
                    .for_each(|a| pairs.insert(a, b));
            }
            let text = pairs_text(&pairs, slots);
            assert_eq!(field(slots).pairs(&text).unwrap(), pairs, "{text}");
            text
        };
        assert_eq!(text(&|_, _| false, 9), "");
        assert_eq!(text(&|_, _| true, 70), "0-68/1-69");
        assert_eq!(text(&|a, b| a < 4 && b >= 4, 9), "0-3/4-8");
        assert_eq!(text(&|a, b| a == 5 || b == 5, 9), "0-4/5;5/6-8");
        assert_eq!(text(&|a, b| (a, b) == (2, 7), 9), "2/7");
        let mut random = fastrand::Rng::with_seed(7);
        for slots in [2, 65, 130] {
            let bits: Vec<bool> = (0..slots * slots).map(|_| random.bool()).collect();
            text(&|a, b| bits[(a * slots + b) as usize], slots);
        }
    }

    #[test]
    fn pairs_that_cannot_be_are_refused_by_name() {
        let cases = [
            ("1", "it: '1' is not SET/SET"),
            ("1/2;", "it: '' is not SET/SET"),
            ("1/9", "it: slot 9; there are 9"),
            ("1/2;1/3", "it: slot 1 comes twice"),
            ("1/2/3", "it: '2/3' is no number up to 4294967295"),
        ];
        for (text, reason) in cases {
            assert_eq!(refused(field(9).pairs(text)), reason, "{text}");
        }
    }
}
