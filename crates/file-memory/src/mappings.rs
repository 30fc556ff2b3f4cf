//! All mappings of this process.

use std::fs;

use crate::MapLine;

/// The mappings of this process at one moment.
#[derive(Debug)]
pub struct Mappings(Option<Vec<Mapping>>);

#[derive(Debug)]
struct Mapping {
    first: u64,
    /// After its last address.
    end: u64,
    line: String,
}

impl Mappings {
    /// As they are now. To read them costs some microseconds for each, so whoever asks about many ranges reads them once.
    #[must_use]
    pub fn now() -> Self {
        let text = fs::read_to_string("/proc/self/maps");
        Self(text.ok().and_then(|text| parse(&text)))
    }

    /// Whether a byte of the range lies in a file that may become shorter. True also where the system does not show the mappings.
    #[must_use]
    pub fn may_shrink(&self, address: u64, bytes: u64) -> bool {
        let end = address.saturating_add(bytes);
        let Some(all) = &self.0 else {
            return true;
        };
        // They ascend.
        let begin = all.partition_point(|mapping| mapping.end <= address);
        let met = all[begin..].iter().take_while(|it| it.first < end);
        met.into_iter()
            .any(|it| MapLine::parse(&it.line).is_none_or(|line| line.may_shrink()))
    }
}

/// None where a line is not of the form that the kernel gives it.
fn parse(text: &str) -> Option<Vec<Mapping>> {
    let mapping = |line: &str| {
        let MapLine { first, end, .. } = MapLine::parse(line)?;
        let line = line.to_owned();
        Some(Mapping { first, end, line })
    };
    text.lines().map(mapping).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_mapping_of_the_range_counts_and_no_other() {
        let maps = "1000-3000 rw-p 0 00:00 0\n3000-4000 rw-s 0 08:01 7 /no/such/file\n\
            5000-6000 rw-p 0 00:00 0\n";
        let maps = Mappings(parse(maps));
        let shrinks = |at, end| maps.may_shrink(at, end - at);
        assert!(shrinks(0x2fff, 0x3001) && shrinks(0x3fff, 0x5001) && shrinks(0, u64::MAX));
        assert!(maps.may_shrink(0x3000, u64::MAX));
        assert!(!shrinks(0x1000, 0x3000) && !shrinks(0x4000, 0x6000));
        assert!(!shrinks(0x7000, 0x8000) && !shrinks(0, 0x1000));
    }

    #[test]
    fn mappings_that_the_system_does_not_show_may_all_shrink() {
        assert!(Mappings(parse("nonsense\n")).may_shrink(0, 1));
    }
}
