//! A completion queue: a ring of entries in registered memory that the device writes.

use super::arming::{Arming, Notice};
use crate::device::memory::Region;
use mlx5_prm::cq::Cqc;
use mlx5_prm::cqe::CqeOpcode;
use mlx5_prm::doorbell::cq_record;

/// A completion queue.
#[derive(Debug)]
pub(crate) struct Cq {
    pub(crate) context: u32,
    pub(crate) uar: u32,
    /// Ids of the UMEMs of the ring and of the doorbell record.
    pub(crate) umems: [u32; 2],
    pub(crate) ring: Region,
    pub(crate) record: Region,
    /// The context as the CQ was made, with later changes.
    pub(crate) cqc: Cqc,
    /// Number of entries written.
    pub(crate) producer: u32,
    pub(crate) overrun: bool,
    pub(crate) arming: Arming,
}

/// The error that a CQ was full: the entry is lost and the CQ is dead.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Overrun {
    pub(crate) producer: u32,
    pub(crate) consumer: u32,
    pub(crate) entries: u32,
}

impl Cq {
    /// Value of `status` in a context: the CQ has overrun.
    pub(crate) const STATUS_OVERRUN: u32 = 9;
    /// Length of an entry without its last word, which hands the entry over.
    const BODY: usize = 60;

    pub(crate) fn entries(&self) -> u32 {
        1 << self.cqc.log_cq_size()
    }

    /// Returns the length of an entry in bytes, 64 or 128.
    pub(crate) fn entry_bytes(cqc: &Cqc) -> usize {
        64 << cqc.cqe_sz()
    }

    /// Writes an entry: first the body, then the four bytes that hold index and owner, in one release store. Returns whether it was
    /// written.
    ///
    /// # Errors
    ///
    /// If the consumer is a whole ring late, and the CQ does not ignore overruns. Only the first such call fails. A CQ that has overrun
    /// drops later entries and returns false.
    pub(crate) fn push(&mut self, mut entry: [u8; 64]) -> Result<bool, Overrun> {
        if self.overrun {
            return Ok(false);
        }
        let entries = self.entries();
        if self.cqc.oi() == 0 {
            let consumer = self.record.load_be32(cq_record::CONSUMER_INDEX) & cq_record::INDEX_MASK;
            let ahead = self.producer.wrapping_sub(consumer) & cq_record::INDEX_MASK;
            if ahead >= entries {
                self.overrun = true;
                self.cqc.set_status(Self::STATUS_OVERRUN);
                return Err(Overrun {
                    producer: self.produced(),
                    consumer,
                    entries,
                });
            }
        }
        let collapsed = self.cqc.cc() != 0;
        let index = if collapsed {
            0
        } else {
            self.producer & (entries - 1)
        };
        let pass = self.producer >> self.cqc.log_cq_size() & 1;
        let owner = if collapsed { 0 } else { pass };
        entry[63] = entry[63] & !1 | owner.to_be_bytes()[3];
        let stride = Self::entry_bytes(&self.cqc);
        // In an entry of 128 bytes the CQE is the last 64 bytes. PANIC: the ring has `entries` strides.
        let at = index as usize * stride + stride - 64;
        self.ring.write(at, &entry[..Self::BODY]);
        let last = [entry[60], entry[61], entry[62], entry[63]];
        self.ring.store_release(at + Self::BODY, last);
        self.producer = self.producer.wrapping_add(1);
        Ok(true)
    }

    /// Returns the number of entries that software has not consumed.
    pub(crate) fn waiting(&self) -> u32 {
        let consumer = self.record.load_be32(cq_record::CONSUMER_INDEX);
        self.producer.wrapping_sub(consumer) & cq_record::INDEX_MASK
    }

    /// Ends the ring with an entry that says so, and goes on in ring `ring`. That last entry has an index, too. So software moves each
    /// entry that it has not consumed one place further when it copies it to the new ring.
    pub(crate) fn resize(&mut self, ring: Region, umem: u32, cqc: Cqc) {
        let mut entry = [0; 64];
        entry[63] = CqeOpcode::RESIZE_CQ.0 << 4;
        // A CQ that has overrun writes nothing any more.
        let _ = self.push(entry);
        self.ring = ring;
        self.umems[0] = umem;
        self.cqc = cqc.with_status(self.cqc.status());
    }

    /// Returns the number of entries written, modulo 2^24, as a context counts them.
    pub(crate) fn produced(&self) -> u32 {
        self.producer & cq_record::INDEX_MASK
    }

    /// Makes armings that were stored before this not count. It stores an arm word that software never writes, so every arm word of
    /// software differs from it.
    pub(crate) fn disarm(&mut self) {
        self.record
            .store_release(cq_record::ARM, Arming::NO_ARMING.to_be_bytes());
        self.arming = Arming::new(Arming::NO_ARMING);
    }

    /// Looks at the arm word after a store to the UAR page. `named`: the store names this CQ.
    pub(crate) fn look_at_arm_word(&mut self, named: bool, now_ns: u64) -> Notice {
        let word = self.record.load_be32(cq_record::ARM);
        if self.arming.take(word, named) {
            self.judge(now_ns)
        } else {
            Notice::Nothing
        }
    }

    /// Notes that an entry has been written.
    pub(crate) fn entry_written(&mut self, solicited: bool, now_ns: u64) -> Notice {
        if solicited {
            self.arming.solicited(self.producer);
        }
        self.judge(now_ns)
    }

    /// Returns whether to raise the event now.
    pub(crate) fn judge(&mut self, now_ns: u64) -> Notice {
        self.arming.judge(self.producer, &self.cqc, now_ns)
    }

    /// Returns the context as `QUERY_CQ` shows it.
    pub(crate) fn queried(&self) -> Cqc {
        let consumer = self.record.load_be32(cq_record::CONSUMER_INDEX) & cq_record::INDEX_MASK;
        self.cqc
            .with_producer_counter(self.produced())
            .with_consumer_counter(consumer)
            .with_st(self.arming.state())
            .with_last_notified_index(self.arming.notified())
    }
}

/// Returns a CQ of at most 64 entries in `memory`.
#[cfg(test)]
pub(crate) fn tests_cq(memory: &mut Vec<u64>, cqc: Cqc) -> Cq {
    memory.resize(1024, u64::MAX);
    memory[0] = 0;
    let all = crate::device::memory::tests_memory(memory);
    Cq {
        context: 0,
        uar: 0,
        umems: [0; 2],
        ring: all.part(64, 64 << 6).unwrap(),
        record: all.part(0, 8).unwrap(),
        cqc,
        producer: 0,
        overrun: false,
        arming: Arming::new(u32::MAX),
    }
}

#[cfg(test)]
mod tests {
    use super::tests_cq as cq;
    use super::*;

    fn entry(index: u16) -> [u8; 64] {
        let mut entry = [0; 64];
        entry[60..62].copy_from_slice(&index.to_be_bytes());
        entry
    }

    fn byte(cq: &Cq, at: usize) -> u8 {
        let mut out = [0];
        cq.ring.read(at, &mut out);
        out[0]
    }

    #[test]
    fn the_owner_bit_changes_with_each_pass() {
        let mut memory = Vec::new();
        let mut cq = cq(&mut memory, Cqc::default().with_log_cq_size(1).with_oi(1));
        let owners: Vec<u8> = (0..6u16)
            .map(|n| {
                cq.push(entry(n)).unwrap();
                byte(&cq, usize::from(n % 2) * 64 + 63)
            })
            .collect();
        assert_eq!(owners, [0, 0, 1, 1, 0, 0]);
    }

    #[test]
    fn a_collapsed_queue_writes_entry_0_only() {
        let mut memory = Vec::new();
        let cqc = Cqc::default().with_log_cq_size(2).with_cc(1).with_oi(1);
        let mut cq = cq(&mut memory, cqc);
        for n in 0..9u16 {
            cq.push(entry(n)).unwrap();
            assert_eq!(byte(&cq, 61), n.to_be_bytes()[1]);
            assert_eq!(byte(&cq, 63), 0);
            assert_eq!(byte(&cq, 64), 0xff);
        }
    }

    #[test]
    fn a_full_queue_overruns_once_and_then_stays_silent() {
        let mut memory = Vec::new();
        let mut cq = cq(&mut memory, Cqc::default().with_log_cq_size(1));
        assert_eq!(cq.push(entry(0)), Ok(true));
        assert_eq!(cq.push(entry(1)), Ok(true));
        let overrun = Overrun {
            producer: 2,
            consumer: 0,
            entries: 2,
        };
        assert_eq!(cq.push(entry(2)), Err(overrun));
        assert_eq!(cq.push(entry(3)), Ok(false));
        assert_eq!(byte(&cq, 61), 0);
        assert_eq!(cq.queried().status(), Cq::STATUS_OVERRUN);
    }

    #[test]
    fn a_resized_queue_ends_its_old_ring_and_goes_on_in_the_new_one() {
        let mut memory = Vec::new();
        let mut cq = cq(&mut memory, Cqc::default().with_log_cq_size(2));
        cq.push(entry(0)).unwrap();
        assert_eq!(cq.waiting(), 1);
        let mut other = vec![u64::MAX; 64];
        let ring = crate::device::memory::tests_memory(&mut other);
        let old = cq.ring;
        cq.resize(ring, 5, cq.cqc.with_log_cq_size(3));
        cq.push(entry(9)).unwrap();
        let mut last = [0; 4];
        old.read(64 + 60, &mut last);
        assert_eq!(last[3], 0x50);
        assert_eq!(
            byte(&cq, 64 + 61),
            0xff,
            "the place of the entry that ended it"
        );
        assert_eq!(byte(&cq, 2 * 64 + 61), 9);
        assert_eq!(cq.entries(), 8);
    }

    #[test]
    fn of_a_long_entry_only_the_second_half_is_written() {
        let mut memory = Vec::new();
        let cqc = Cqc::default().with_log_cq_size(1).with_cqe_sz(1);
        let mut cq = cq(&mut memory, cqc);
        cq.push(entry(7)).unwrap();
        assert_eq!(byte(&cq, 0), 0xff);
        assert_eq!(byte(&cq, 64 + 61), 7);
    }
}
