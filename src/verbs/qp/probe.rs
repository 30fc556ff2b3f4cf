//! The probe: one RDMA WRITE of no bytes, which the host posts before any kernel posts in a life of a QP. Its completion proves that the
//! other end takes what this QP sends, and that the answers come back.
//!
//! The probe takes the first index of the life. The host leaves the QP's memory as a kernel would that has posted one WQE and has seen it
//! complete. So kernels continue after the probe. No kernel uses the QP meanwhile.
//!
//! A write of no bytes has no data segment, and the responder looks at no key: the probe needs no window.

use std::mem::offset_of;
use std::sync::atomic::{Ordering, fence};

use mlx5_prm::cqe::{CqeOpcode, ErrCqe};
use mlx5_prm::doorbell::qp_record;
use mlx5_prm::wqe::{CtrlSeg, RaddrSeg, WqeOpcode};

use crate::abi::{self, MODE_NO_RECORD, MODE_WIDE_CQ, QpContext, WQEBB_BYTES};
use crate::verbs::limits::CQE_BYTES;
use crate::verbs::qp::image::{ImagePart, QpLayout};

/// The length of the WQE in 16-byte units: control and remote address.
const PROBE_DS: u8 = 2;
/// The offset of the last 8 bytes of a CQE, which the device writes at once: opcode and QPN, WQE counter, signature, kind and owner.
const LAST_WORD: u64 = 56;
/// The offset of the 8 bytes before these. Their last two bytes are vendor syndrome and syndrome of an error CQE.
const SYNDROME_WORD: u64 = 48;
const _: () = {
    assert!(offset_of!(ErrCqe, s_wqe_opcode_qpn) as u64 == LAST_WORD);
    assert!(offset_of!(ErrCqe, vendor_err_synd) as u64 == SYNDROME_WORD + 6);
    assert!(offset_of!(ErrCqe, syndrome) as u64 == SYNDROME_WORD + 7);
    assert!(offset_of!(QpContext, resv) == offset_of!(QpContext, claim) + 8);
};

/// The state of a probe.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Probe {
    /// No completion has come yet.
    Pending,
    /// The other end has taken the probe.
    Done,
    /// The QP is in error: `vendor_err_synd << 8 | syndrome`.
    Failed(u32),
}

impl QpLayout {
    /// Returns what a kernel writes, up to the doorbell, when it posts a write of no bytes as the first WQE of the life from `base`.
    /// `doorbells` is the number of that doorbell.
    pub(in crate::verbs::qp) fn probe(&self, base: u64, doorbells: u64) -> Vec<ImagePart> {
        let end = base + 1;
        let context = |offset: usize| self.context_addr + offset as u64;
        let words = |addr, words: &[u64]| ImagePart {
            addr,
            bytes: bytemuck::cast_slice(words).to_vec(),
        };
        // `base` is a multiple of the depth and of 2^16, so the probe has the first slot, and index 0 for the HCA.
        let mut parts = vec![
            ImagePart {
                addr: self.sq_addr,
                bytes: self.probe_wqe(),
            },
            // The token moves on. The flag in which it was parked stays, as kernels leave it.
            words(self.flags_addr + 8, &[abi::parked(end)]),
            words(context(offset_of!(QpContext, claim)), &[end, end]),
            words(context(offset_of!(QpContext, doorbell_index)), &[end]),
            words(context(offset_of!(QpContext, doorbells)), &[doorbells]),
        ];
        if self.mode & MODE_NO_RECORD == 0 {
            let mut record = self.dbrec();
            record[qp_record::SND / 4] = 1u32.to_be();
            parts.push(ImagePart {
                addr: self.dbrec_addr,
                bytes: bytemuck::cast_slice(&record).to_vec(),
            });
        }
        parts
    }

    fn probe_wqe(&self) -> Vec<u8> {
        let control = CtrlSeg {
            fm_ce_se: CtrlSeg::CE_ALWAYS,
            ..CtrlSeg::new(WqeOpcode::RDMA_WRITE, 0, self.qpn, PROBE_DS)
        };
        let mut wqe = bytemuck::bytes_of(&control).to_vec();
        wqe.extend(bytemuck::bytes_of(&RaddrSeg::default()));
        wqe.resize(WQEBB_BYTES as usize, 0);
        wqe
    }

    /// Returns what a kernel writes when it has seen the probe of that life complete.
    pub(in crate::verbs::qp) fn probe_done(&self, base: u64) -> Vec<ImagePart> {
        let word = |offset: usize, value: u64| ImagePart {
            addr: self.context_addr + offset as u64,
            bytes: value.to_le_bytes().to_vec(),
        };
        let mut parts = vec![word(offset_of!(QpContext, cons), base + 1)];
        if self.mode & MODE_WIDE_CQ != 0 {
            let taken = u64::from(self.produced) + 1;
            parts.push(word(offset_of!(QpContext, cq_consumed), taken));
        }
        parts
    }

    /// Returns what the CQ says about the probe. `read` copies from the QP's memory.
    pub(in crate::verbs::qp) fn look_at_probe<E>(
        &self,
        mut read: impl FnMut(u64, &mut [u8]) -> Result<(), E>,
    ) -> Result<Probe, E> {
        let is_wide = self.mode & MODE_WIDE_CQ != 0;
        let entry = if is_wide {
            u64::from(self.produced & (self.depth - 1))
        } else {
            0
        };
        let cqe = self.cqe_addr + entry * CQE_BYTES;
        let mut last = [0; 8];
        read(cqe + LAST_WORD, &mut last)?;
        let [.., counter_high, counter_low, _, op_own] = last;
        // An entry of the ring was written by the device in this lap if its owner bit is that of the lap.
        let lap = (self.produced / self.depth) & 1;
        if is_wide && u32::from(op_own & 1) != lap {
            return Ok(Probe::Pending);
        }
        match CqeOpcode(op_own >> 4) {
            CqeOpcode::REQ_ERR | CqeOpcode::RESP_ERR => {
                // Acquire: pairs with the device, which writes the last word last.
                fence(Ordering::Acquire);
                let mut cause = [0; 8];
                read(cqe + SYNDROME_WORD, &mut cause)?;
                let [.., vendor, syndrome] = cause;
                Ok(Probe::Failed(u32::from(vendor) << 8 | u32::from(syndrome)))
            }
            // An entry that does not name the first WQE is not the probe's.
            CqeOpcode::REQ if [counter_high, counter_low] == [0, 0] => Ok(Probe::Done),
            _ => Ok(Probe::Pending),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LAYOUT: QpLayout = QpLayout {
        qpn: 0x00ab_cdef,
        cqn: 5,
        depth: 256,
        context_addr: 0x10_0000,
        context_offset: 0,
        flags_addr: 0x10_1000,
        sq_addr: 0x10_2000,
        cqe_addr: 0x20_0000,
        dbrec_addr: 0x10_0000 + QpContext::SQ_DBREC_OFFSET as u64,
        doorbell_addr: 0x7000_0800,
        doorbell_page_addr: 0x7000_0000,
        mailbox_addr: None,
        records_addr: None,
        recv: None,
        produced: 0,
        mode: 0,
        atomics: 0,
    };

    /// Returns what a CQ with these entries says about the probe. Each entry is given by its last 16 bytes.
    fn seen(layout: &QpLayout, entries: &[[u8; 16]]) -> Probe {
        let look = layout.look_at_probe(|addr, out| {
            let at = usize::try_from(addr - layout.cqe_addr).unwrap();
            let (entry, byte) = (at / 64, at % 64 - 48);
            out.copy_from_slice(&entries[entry][byte..byte + out.len()]);
            Ok::<(), ()>(())
        });
        look.unwrap()
    }

    fn entry(syndrome: [u8; 2], counter: u16, op_own: u8) -> [u8; 16] {
        let [high, low] = counter.to_be_bytes();
        let [vendor, syndrome] = syndrome;
        [
            0, 0, 0, 0, 0, 0, vendor, syndrome, 8, 0xab, 0xcd, 0xef, high, low, 0, op_own,
        ]
    }

    #[test]
    fn a_collapsed_entry_tells_success_or_cause_and_names_the_first_wqe() {
        let of = |entry| seen(&LAYOUT, &[entry]);
        assert_eq!(of([0xff; 16]), Probe::Pending);
        assert_eq!(of(entry([0, 0], 0, 0x00)), Probe::Done);
        assert_eq!(of(entry([0, 0], 0, 0x01)), Probe::Done);
        assert_eq!(of(entry([0x81, 0x15], 0, 0xd0)), Probe::Failed(0x8115));
        assert_eq!(of(entry([0x00, 0x05], 0, 0xe0)), Probe::Failed(0x0005));
        // These entries are of another WQE, or of a kind that sends do not have.
        for (counter, op_own) in [
            (1, 0x00),
            (0x100, 0x00),
            (0xffff, 0x00),
            (0, 0x10),
            (0, 0xf0),
        ] {
            assert_eq!(of(entry([0, 0], counter, op_own)), Probe::Pending);
        }
    }

    #[test]
    fn an_entry_of_a_ring_counts_in_its_lap_wherever_the_device_goes_on() {
        for produced in [0, 1, 255, 256, 511, 512, 0xff_ffff] {
            let layout = QpLayout {
                mode: MODE_WIDE_CQ,
                produced,
                ..LAYOUT
            };
            let due = u8::try_from((produced / 256) & 1).unwrap();
            for owner in [0, 1] {
                let mut ring = [[0xff; 16]; 256];
                ring[produced as usize % 256] = entry([0, 0], 0, owner);
                let wanted = if owner == due {
                    Probe::Done
                } else {
                    Probe::Pending
                };
                assert_eq!(seen(&layout, &ring), wanted, "{produced} {owner}");
                ring[produced as usize % 256] = entry([0, 0x15], 0, 0xd0 | owner);
                let wanted = if owner == due {
                    Probe::Failed(0x15)
                } else {
                    Probe::Pending
                };
                assert_eq!(seen(&layout, &ring), wanted, "{produced} {owner}");
            }
        }
    }

    #[test]
    fn the_wqe_has_no_data_segment_and_the_record_says_one_block() {
        let parts = LAYOUT.probe(3 << 16, 7);
        let of = |addr: u64| &parts.iter().find(|part| part.addr == addr).unwrap().bytes;
        let wqe = of(LAYOUT.sq_addr);
        let control = [0, 0, 0, 8, 0xab, 0xcd, 0xef, 2, 0, 0, 0, 8, 0, 0, 0, 0];
        assert_eq!((wqe.len(), &wqe[..16]), (64, &control[..]));
        assert!(wqe[16..].iter().all(|byte| *byte == 0));
        assert_eq!(of(LAYOUT.dbrec_addr)[..], [0, 0, 0, 0, 0, 0, 0, 1]);
        let token = ((3u64 << 16) + 1) << 1 | 1;
        assert_eq!(of(LAYOUT.flags_addr + 8)[..], token.to_le_bytes());
        let without = QpLayout {
            mode: MODE_NO_RECORD,
            ..LAYOUT
        };
        let parts = without.probe(0, 1);
        assert!(parts.iter().all(|part| part.addr != LAYOUT.dbrec_addr));
    }
}
