//! The transitions of an end's QP.

use super::{End, QKEY, RECORD};
use mlx5_prm::cmd::Opcode;
use mlx5_prm::qp::{Ads, QpModifyIn, Qpc, QueryQpIn, QueryQpOut};
use softhca::device::{DeviceError, DevxObject};

impl End {
    /// Sends a transition.
    pub fn modify(&self, opcode: Opcode, qpc: Qpc) -> Result<(), DeviceError> {
        let input = QpModifyIn::default()
            .with_opcode(opcode.0.into())
            .with_qpn(self.qpn)
            .with_qpc(qpc);
        self.context
            .devx_modify(DevxObject::Qp(self.qpn), input.as_bytes(), &mut [0; 16])
    }

    /// Reset to Rts, towards `gid` and `remote_qpn`; `psn` is that of both directions.
    pub fn connect(&self, gid: [u8; 16], remote_qpn: u32, psn: u32) {
        self.init();
        self.ready_to_receive(gid, remote_qpn, psn);
        self.ready_to_send(psn);
    }

    /// Reset to Init.
    pub fn init(&self) {
        self.init_in(0).unwrap();
    }

    /// Reset to Init, in the partition at this index of the port's table.
    pub fn init_in(&self, pkey_index: u32) -> Result<(), DeviceError> {
        let path = Ads::default().with_vhca_port_num(1);
        self.init_by(path.with_pkey_index(pkey_index))
    }

    /// Reset to Init, on this port.
    pub fn init_on(&self, port: u8) -> Result<(), DeviceError> {
        self.init_by(Ads::default().with_vhca_port_num(port.into()))
    }

    fn init_by(&self, path: Ads) -> Result<(), DeviceError> {
        let qpc = Qpc::default()
            .with_rwe(self.shape.rwe)
            .with_rre(self.shape.rre)
            .with_rae(self.shape.rae)
            .with_atomic_mode(3)
            .with_pm_state(3)
            .with_q_key(QKEY)
            .with_primary_address_path(path);
        self.modify(Opcode::RST2INIT_QP, qpc)
    }

    /// Init to RTR.
    pub fn ready_to_receive(&self, gid: [u8; 16], remote_qpn: u32, psn: u32) {
        let path = Ads::default()
            .with_rgid_rip(gid)
            .with_src_addr_index(3)
            .with_hop_limit(64);
        self.ready_to_receive_by(path, remote_qpn, psn).unwrap();
    }

    /// Init to RTR, by another GID or path.
    pub fn ready_to_receive_by(
        &self,
        path: Ads,
        remote_qpn: u32,
        psn: u32,
    ) -> Result<(), DeviceError> {
        let qpc = Qpc::default()
            .with_mtu(self.shape.mtu)
            .with_log_msg_max(30)
            .with_remote_qpn(remote_qpn)
            .with_next_rcv_psn(psn)
            .with_log_rra_max(4)
            .with_min_rnr_nak(1)
            .with_primary_address_path(path);
        self.modify(Opcode::INIT2RTR_QP, qpc)
    }

    /// RTR to RTS.
    pub fn ready_to_send(&self, psn: u32) {
        let path = Ads::default().with_ack_timeout(self.shape.ack_timeout);
        let qpc = Qpc::default()
            .with_next_send_psn(psn)
            .with_retry_count(self.shape.retry_count)
            .with_rnr_retry(self.shape.rnr_retry)
            .with_log_sra_max(4)
            .with_primary_address_path(path);
        self.modify(Opcode::RTR2RTS_QP, qpc).unwrap();
    }

    /// To reset; the software side starts at index 0 again.
    pub fn reset(&mut self) {
        self.modify(Opcode::TO_RST_QP, Qpc::default()).unwrap();
        self.control.write(RECORD, &[0; 8]);
        self.index = 0;
        self.receives = 0;
    }

    /// Returns the QP's context, as the device has it.
    pub fn query(&self) -> Qpc {
        let input = QueryQpIn::default()
            .with_opcode(Opcode::QUERY_QP.0.into())
            .with_qpn(self.qpn);
        let mut output = [0xff; QueryQpOut::BYTES];
        self.context
            .devx_query(DevxObject::Qp(self.qpn), input.as_bytes(), &mut output)
            .unwrap();
        *QueryQpOut::from_bytes(&output).unwrap().qpc()
    }
}
