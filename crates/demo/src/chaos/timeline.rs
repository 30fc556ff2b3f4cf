//! `--timeline FILE.svg`: a picture with a bar for each rank, coloured by how the rank stands.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;

use crate::record::{Record, RecordKind};

/// How a rank stands, as the group sees it. A rank that was killed counts as gone once a view is without it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Standing {
    Joining,
    Serving,
    /// The rank serves, and waits for a rank that it suspects.
    Waiting,
    /// Other ranks suspect the rank.
    Suspected,
    /// The rank serves in a view that parts it from another member.
    Parted,
    Gone,
}

/// A stretch of time in which a rank stands in one way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Span {
    pub(super) from: u64,
    pub(super) to: u64,
    pub(super) standing: Standing,
}

impl Standing {
    const ALL: [Self; 6] = [
        Self::Joining,
        Self::Serving,
        Self::Waiting,
        Self::Suspected,
        Self::Parted,
        Self::Gone,
    ];

    fn name(self) -> &'static str {
        match self {
            Self::Joining => "joining",
            Self::Serving => "serving",
            Self::Waiting => "waiting",
            Self::Suspected => "suspected",
            Self::Parted => "parted",
            Self::Gone => "gone",
        }
    }

    fn colour(self) -> &'static str {
        match self {
            Self::Joining => "#5b8def",
            Self::Serving => "#4caf6d",
            Self::Waiting => "#f2c14e",
            Self::Suspected => "#e4572e",
            Self::Parted => "#b07aa1",
            Self::Gone => "#d9d9d9",
        }
    }
}

/// What is known of one rank.
#[derive(Debug, Default)]
struct Track {
    started: bool,
    serves: bool,
    /// True if the view of the rank parts it from another rank.
    parted: bool,
    suspects: BTreeSet<u32>,
    suspected_by: BTreeSet<u32>,
    spans: Vec<Span>,
}

impl Track {
    fn standing(&self) -> Standing {
        match (self.started, self.serves) {
            (false, _) => Standing::Gone,
            (true, false) => Standing::Joining,
            (true, true) if !self.suspected_by.is_empty() => Standing::Suspected,
            (true, true) if !self.suspects.is_empty() => Standing::Waiting,
            (true, true) if self.parted => Standing::Parted,
            (true, true) => Standing::Serving,
        }
    }

    /// Extends the last span to `now`, before something changes.
    fn until(&mut self, now: u64) {
        let standing = self.standing();
        match self.spans.last_mut() {
            Some(last) if last.standing == standing => last.to = now,
            last => {
                let from = last.map_or(0, |last| last.to);
                let to = now;
                if to > from {
                    self.spans.push(Span { from, to, standing });
                }
            }
        }
    }

    fn end(&mut self) {
        self.started = false;
        self.serves = false;
        self.parted = false;
        self.suspects.clear();
        self.suspected_by.clear();
    }
}

/// Returns how each rank stands over time, from `records` in the order of their times.
pub(super) fn spans(records: &[Record]) -> BTreeMap<u32, Vec<Span>> {
    let mut tracks: BTreeMap<u32, Track> = BTreeMap::new();
    for record in records {
        tracks.entry(record.rank).or_default();
    }
    for record in records {
        for track in tracks.values_mut() {
            track.until(record.us);
        }
        apply(&mut tracks, record);
    }
    let spans = |(rank, track): (u32, Track)| (rank, track.spans);
    tracks.into_iter().map(spans).collect()
}

fn apply(tracks: &mut BTreeMap<u32, Track>, record: &Record) {
    let rank = record.rank;
    match &record.what {
        RecordKind::Started => {
            let track = tracks.entry(rank).or_default();
            track.end();
            track.started = true;
        }
        RecordKind::Killed => {
            // The rank has ended: what it thought of others counts no more, and only what others see of it counts.
            tracks.entry(rank).or_default().suspects.clear();
            for track in tracks.values_mut() {
                track.suspected_by.remove(&rank);
            }
        }
        RecordKind::Suspects { other, .. } => {
            tracks.entry(rank).or_default().suspects.insert(*other);
            tracks.entry(*other).or_default().suspected_by.insert(rank);
        }
        RecordKind::Trusts { other } => {
            tracks.entry(rank).or_default().suspects.remove(other);
            tracks.entry(*other).or_default().suspected_by.remove(&rank);
        }
        RecordKind::Serves {
            members, parted, ..
        } => {
            let track = tracks.entry(rank).or_default();
            track.serves = true;
            track.parted = parted.iter().any(|&(a, b)| a == rank || b == rank);
            track.suspects.retain(|other| members.contains(other));
            let gone = |other: &u32| *other != rank && !members.contains(other);
            for (_, track) in tracks.iter_mut().filter(|(other, _)| gone(other)) {
                // A rank that asks to come in is in no view yet.
                if track.serves {
                    track.end();
                }
            }
        }
        RecordKind::Expelled | RecordKind::GaveUp { .. } => tracks.entry(rank).or_default().end(),
        RecordKind::Plan { .. }
        | RecordKind::Deed(_)
        | RecordKind::TakesBack { .. }
        | RecordKind::DeedOver { .. }
        | RecordKind::Stood { .. }
        | RecordKind::Rival
        | RecordKind::Disturbed { .. }
        | RecordKind::Calm
        | RecordKind::Failed { .. }
        | RecordKind::Asks
        | RecordKind::Connected { .. }
        | RecordKind::Masked { .. }
        | RecordKind::Proposes { .. }
        | RecordKind::Slept
        | RecordKind::Promises { .. }
        | RecordKind::Notes { .. }
        | RecordKind::Step { .. } => {}
    }
}

const LEFT: u64 = 70;
const WIDTH: u64 = 1000;
const ROW: u64 = 26;
const TOP: u64 = 40;

/// Returns the picture.
pub(super) fn svg(records: &[Record]) -> String {
    let rows = spans(records);
    let length = records.last().map_or(0, |record| record.us).max(1);
    let x = |us: u64| LEFT + us * WIDTH / length;
    let height = TOP + ROW * rows.len() as u64 + 40;
    let mut out = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{}\" height=\"{height}\" font-family=\"sans-serif\" font-size=\"12\">\n\
         <rect width=\"100%\" height=\"100%\" fill=\"#ffffff\"/>\n",
        LEFT + WIDTH + 20
    );
    for (place, standing) in (0u64..).zip(Standing::ALL) {
        let at = LEFT + place * 110;
        let (colour, name) = (standing.colour(), standing.name());
        let _ = writeln!(
            out,
            "<rect x=\"{at}\" y=\"10\" width=\"14\" height=\"14\" fill=\"{colour}\"/><text x=\"{}\" y=\"22\">{name}</text>",
            at + 20
        );
    }
    let mut y_of = BTreeMap::new();
    for (place, (rank, spans)) in (0u64..).zip(&rows) {
        let y = TOP + place * ROW;
        y_of.insert(*rank, y);
        let _ = writeln!(out, "<text x=\"8\" y=\"{}\">rank {rank}</text>", y + 15);
        for span in spans {
            // A span shorter than a pixel is drawn as one pixel.
            let (from, to) = (x(span.from), x(span.to).max(x(span.from) + 1));
            let _ = writeln!(
                out,
                "<rect x=\"{from}\" y=\"{y}\" width=\"{}\" height=\"20\" fill=\"{}\"><title>rank {rank} {}, {} to {} ms</title></rect>",
                to - from,
                span.standing.colour(),
                span.standing.name(),
                span.from / 1000,
                span.to / 1000
            );
        }
    }
    for record in records {
        let (word, colour) = match record.what {
            RecordKind::Killed => ("killed", "#000000"),
            RecordKind::Disturbed { how } => (how.name(), "#7b3fa0"),
            RecordKind::Calm => ("left alone", "#2a9d8f"),
            _ => continue,
        };
        let (x, y) = (x(record.us), y_of[&record.rank]);
        let _ = writeln!(
            out,
            "<path d=\"M{x} {}v24\" stroke=\"{colour}\" stroke-width=\"2\"><title>rank {} {word}, {} ms</title></path>",
            y - 2,
            record.rank,
            record.us / 1000
        );
    }
    let y = TOP + ROW * rows.len() as u64;
    for tick in 0..=5 {
        let us = length * tick / 5;
        let _ = writeln!(
            out,
            "<text x=\"{}\" y=\"{}\" text-anchor=\"middle\">{:.2} s</text>",
            x(us),
            y + 20,
            std::time::Duration::from_micros(us).as_secs_f64()
        );
    }
    out.push_str("</svg>\n");
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::recorded::{records, told};

    fn of(rank: u32) -> Vec<(u64, u64, Standing)> {
        let all = spans(&records());
        let ms = |span: &Span| (span.from / 1000, span.to / 1000, span.standing);
        all[&rank].iter().map(ms).collect()
    }

    #[test]
    fn a_rank_that_dies_is_suspected_then_gone_and_joins_again() {
        use Standing::{Gone, Joining, Serving, Suspected};
        assert_eq!(
            of(2),
            [
                (0, 120, Joining),
                (120, 204, Serving),
                (204, 230, Suspected),
                (230, 500, Gone),
                (500, 650, Joining),
                (650, 901, Serving),
                (901, 961, Standing::Waiting),
            ]
        );
    }

    #[test]
    fn a_survivor_waits_until_it_resumes_and_a_false_suspicion_heals() {
        use Standing::{Joining, Serving, Suspected, Waiting};
        assert_eq!(
            of(0),
            [
                (0, 100, Joining),
                (100, 204, Serving),
                (204, 230, Waiting),
                (230, 300, Serving),
                (300, 320, Waiting),
                (320, 900, Serving),
                (900, 960, Waiting),
                (960, 961, Serving),
            ]
        );
        assert_eq!(
            of(1),
            [
                (0, 110, Joining),
                (110, 206, Serving),
                (206, 240, Waiting),
                (240, 300, Serving),
                (300, 320, Suspected),
                (320, 900, Serving),
                (900, 961, Suspected),
            ]
        );
    }

    #[test]
    fn a_pair_that_a_view_parts_is_shown_at_both_ends_until_a_view_unites_it() {
        let mut records = records();
        records.truncate(7);
        let serves = |us, rank, epoch, parted: &[(u32, u32)]| {
            let (parted, members) = (parted.to_vec(), vec![0, 1, 2]);
            let (commands, bytes) = (0, 0);
            let what = RecordKind::Serves {
                epoch,
                members,
                parted,
                commands,
                bytes,
            };
            told(us, rank, 1, what)
        };
        for rank in 0..3 {
            records.push(serves(200_000, rank, 2, &[(0, 2)]));
        }
        for rank in 0..3 {
            records.push(serves(300_000, rank, 3, &[]));
        }
        records.push(serves(400_000, 0, 3, &[]));
        let all = spans(&records);
        for rank in [0, 2] {
            let parted = all[&rank]
                .iter()
                .filter(|span| span.standing == Standing::Parted);
            let times: Vec<(u64, u64)> = parted.map(|span| (span.from, span.to)).collect();
            assert_eq!(times, [(200_000, 300_000)], "rank {rank}");
        }
        let is_parted = |span: &Span| span.standing == Standing::Parted;
        assert!(!all[&1].iter().any(is_parted));
    }

    #[test]
    fn spans_of_a_rank_follow_each_other_without_a_gap_from_begin_to_end() {
        let records = records();
        for (rank, spans) in spans(&records) {
            assert_eq!(spans[0].from, 0);
            assert!(
                spans.windows(2).all(|pair| pair[0].to == pair[1].from),
                "rank {rank}"
            );
            assert_eq!(spans.last().unwrap().to, records.last().unwrap().us);
        }
    }

    #[test]
    fn the_picture_has_a_bar_per_span_and_a_mark_per_deed() {
        let records = records();
        let picture = svg(&records);
        let bars: usize = spans(&records).values().map(Vec::len).sum();
        assert_eq!(picture.matches("height=\"20\"").count(), bars);
        assert_eq!(picture.matches("<path ").count(), 1);
        assert!(picture.contains("<title>rank 2 killed, 200 ms</title>"));
        assert!(picture.ends_with("</svg>\n"));
        assert_eq!(picture.matches('<').count(), picture.matches('>').count());
        assert!(svg(&[]).ends_with("</svg>\n"), "of nothing");
    }
}
