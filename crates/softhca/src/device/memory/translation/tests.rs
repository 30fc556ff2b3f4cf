//! Tests of lists against a byte-by-byte model.

use crate::device::memory::translation::*;
use mlx5_prm::be::{Be16, Be32, Be64};

pub(crate) fn klm(key: u32, va: u64, bytes: u32) -> RawEntry {
    bytemuck::cast(Klm {
        byte_count: Be32::new(bytes),
        mkey: Be32::new(key),
        address: Be64::new(va),
    })
}

fn repeat(bytes: u32, repetitions: u32, entries: u16) -> RawEntry {
    bytemuck::cast(RepeatBlock {
        byte_count: Be32::new(bytes),
        op: Be32::new(RepeatBlock::OP),
        repeat_count: Be32::new(repetitions),
        reserved: Be16::new(0),
        num_ent: Be16::new(entries),
    })
}

fn strided(key: u32, va: u64, bytes: u16, stride: u16) -> RawEntry {
    bytemuck::cast(RepeatEntry {
        stride: Be16::new(stride),
        byte_count: Be16::new(bytes),
        memkey: Be32::new(key),
        va: Be64::new(va),
    })
}

/// Returns (key, address) of every byte. Asks for every offset, and checks that walking from piece to piece gives the same.
fn bytes_of(list: &Translation, total: u64) -> Vec<(u32, u64)> {
    let single: Vec<_> = (0..total)
        .map(|offset| list.at(offset).unwrap())
        .map(|piece| (piece.key, piece.va))
        .collect();
    let mut walked = Vec::new();
    while let Some(piece) = list.at(walked.len() as u64) {
        walked.extend((0..piece.bytes).map(|byte| (piece.key, piece.va + byte)));
    }
    assert_eq!(single, walked);
    single
}

#[test]
fn pieces_follow_each_other_and_padding_counts_for_nothing() {
    let list = Translation::new(Mode::Klm, 8);
    let entries = [klm(1, 100, 3), klm(0, 0, 0), klm(2, 7, 2), klm(0, 0, 0)];
    let list = list.with(0, &entries).unwrap();
    let expected = [(1, 100), (1, 101), (1, 102), (2, 7), (2, 8)];
    assert_eq!(bytes_of(&list, 5), expected);
    assert_eq!(list.at(5), None);
    let later = list.with(2, &[klm(3, 50, 1)]).unwrap();
    assert_eq!(bytes_of(&later, 4), [(1, 100), (1, 101), (1, 102), (3, 50)]);
    assert_eq!(later.pieces().count(), 2);
}

#[test]
fn entries_of_one_length_are_found_by_division() {
    let list = Translation::new(Mode::Ksm { log_bytes: 2 }, 4);
    let list = list.with(0, &[klm(1, 100, 9), klm(2, 0, 0)]).unwrap();
    let bytes = bytes_of(&list, 8);
    assert_eq!(bytes[3..5], [(1, 103), (2, 0)]);
    assert_eq!(list.at(8), None);
}

#[test]
fn a_repeated_block_moves_each_piece_by_its_stride() {
    let list = Translation::new(Mode::Klm, 8);
    let entries = [repeat(3, 2, 2), strided(1, 100, 2, 10), strided(2, 7, 1, 1)];
    let list = list.with(0, &entries).unwrap();
    let expected = [(1, 100), (1, 101), (2, 7), (1, 110), (1, 111), (2, 8)];
    assert_eq!(bytes_of(&list, 6), expected);
    assert_eq!(list.at(6), None);
    assert_eq!(list.at(u64::MAX), None);
}

#[test]
fn lists_that_make_no_sense_are_refused() {
    let list = Translation::new(Mode::Klm, 4);
    let refused = |entries: &[RawEntry]| list.with(0, entries).unwrap_err();
    assert_eq!(
        refused(&[klm(1, 0, 1); 5]),
        ListError::TooLong {
            entries: 5,
            limit: 4
        }
    );
    assert_eq!(
        refused(&[repeat(1, 1, 2), strided(1, 0, 1, 1)]),
        ListError::RepeatEntries {
            announced: 2,
            entries: 1
        }
    );
    assert_eq!(
        refused(&[repeat(2, 1, 1), strided(1, 0, 1, 1)]),
        ListError::RepeatBytes {
            announced: 2,
            bytes: 1
        }
    );
    let ksm = Translation::new(Mode::Ksm { log_bytes: 12 }, 4);
    assert_eq!(
        ksm.with(0, &[repeat(0, 1, 0)]).unwrap_err(),
        ListError::RepeatInKsm
    );
    let error = list.with(usize::MAX, &[klm(1, 0, 1)]).unwrap_err();
    assert!(matches!(error, ListError::TooLong { .. }), "{error}");
}

#[test]
fn an_empty_repeated_block_covers_nothing() {
    let list = Translation::new(Mode::Klm, 4);
    let list = list.with(0, &[repeat(0, 9, 0)]).unwrap();
    assert_eq!(list.at(0), None);
    assert_eq!(list.pieces().count(), 0);
}
