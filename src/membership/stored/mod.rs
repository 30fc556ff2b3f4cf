//! The form in which the store holds the record of a group and the rows of its ranks: JSON objects whose sets are text.
//!
//! ```text
//! SET     0-6,8,10-4095     runs of slots, ascending; empty for none
//!         x0f..01           or all slots as bits in hexadecimal digits, slot 0 in the last one: ⌈slots / 4⌉ digits
//! NUMBERS 1*4090,3,1*5      one number for each slot of a set, ascending; `N*K` is K times N
//! TABLE   SET=NUMBERS       a number for each slot of a set: generations; SET=NUMBERS=NUMBERS two; empty for none
//! PAIRS   SET/SET;SET/SET   all pairs of a slot of the first set and a higher one of the second; no slot is in two first sets
//! ```
//!
//! A writer takes the shorter form. A field that is empty is left out. The record names its slots, so that one of another team is
//! refused. Whatever changes here needs another [`RECORD_VERSION`](rendezvous::RECORD_VERSION).

mod error;
mod keys;
mod record;
mod row;
mod sets;
mod words;

pub(super) use error::Unreadable;
pub(super) use keys::{
    CONFIG, GOODBYES, GROUP, HAD, MEMBERS, OVER, PROMISES, RECORD, ROWS, all_words, goodbye_key,
    had_key, key, member_key, over_key, promise_key, rank_generation, row_key, say_over, words_of,
};
pub(super) use record::{parse_any_record, parse_record, record_text};
pub(super) use row::{StoredRow, parse_row, row_text};
pub(super) use words::{Goodbye, Had, Member, parse, text};
