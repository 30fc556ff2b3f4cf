//! A program that opens a device by rdma-sys and sends messages between two QPs of its own. At the same time it runs a team of
//! two ranks in the same context and domain: `wv sim -- ping_pong`.

// UNSAFETY: calls into libibverbs, as a program with rdma-sys makes them.
#![expect(unsafe_code, reason = "calls into libibverbs")]

use std::error::Error;
use std::mem::zeroed;
use std::ptr::{addr_of_mut, null_mut};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use rdma_sys::*;
use warpverbs::gpu::{self, GpuSelector};
use warpverbs::moe::{Batch, Moe, MoeConfig, Workspace, bf16};
use warpverbs::team::{JoinOptions, MemoryStore, Store, TeamConfig};
use warpverbs::verbs::{Pd, adopted};
use warpverbs_interop::rdma_sys::{context, mr, pd};

type Outcome<T> = Result<T, Box<dyn Error + Send + Sync>>;

/// Longest wait for anything.
const PATIENCE: Duration = Duration::from_secs(60);
const ROUNDS: u64 = 2000;
const STEPS: u32 = 20;
const MESSAGE: u32 = 1024;

pub(crate) fn main() -> Outcome<()> {
    // SAFETY: the types are those of libibverbs; what is opened here is closed here, when the runtime uses it no more.
    unsafe {
        let mut count = 0;
        let list = ibv_get_device_list(&raw mut count);
        if list.is_null() || count == 0 {
            return Err("no RDMA device: wv sim -- ping_pong".into());
        }
        let device = ibv_open_device(*list);
        ibv_free_device_list(list);
        if device.is_null() {
            return Err(std::io::Error::last_os_error().into());
        }
        let domain = ibv_alloc_pd(device);
        let mut memory = vec![0u8; 2 * MESSAGE as usize];
        let rights = ibv_access_flags::IBV_ACCESS_LOCAL_WRITE.0;
        let region = ibv_reg_mr(
            domain,
            memory.as_mut_ptr().cast(),
            memory.len(),
            rights.cast_signed(),
        );
        if domain.is_null() || region.is_null() {
            return Err(std::io::Error::last_os_error().into());
        }
        {
            let context = context(&*device)?;
            let pd = pd(&context, &*domain)?;
            let own = mr(&pd, &*region)?;
            assert_eq!((own.lkey(), own.bytes()), ((*region).lkey, 2048));
            let gid_index = context.own_gid()?.index;
            let mut own = Own::new(device, domain, region, gid_index)?;
            let store: Arc<dyn Store> = Arc::new(MemoryStore::new());
            thread::scope(|scope| -> Outcome<()> {
                let ranks = [0, 1].map(|rank| {
                    let (pd, store) = (Arc::clone(&pd), Arc::clone(&store));
                    scope.spawn(move || team(rank, &pd, store))
                });
                // On until the ranks are through, and the rounds as well.
                let mut rounds = 0;
                while rounds < ROUNDS || ranks.iter().any(|rank| !rank.is_finished()) {
                    own.round(rounds)?;
                    rounds += 1;
                }
                for rank in ranks {
                    rank.join().map_err(|_| "a rank has panicked")??;
                }
                println!(
                    "{rounds} rounds of the program's own, beside {STEPS} steps of a team of 2"
                );
                Ok(())
            })?;
            own.close();
        }
        assert_eq!(adopted(device.cast()) + adopted(domain.cast()), 0);
        let closed = [
            ibv_dereg_mr(region),
            ibv_dealloc_pd(domain),
            ibv_close_device(device),
        ];
        assert_eq!(closed, [0; 3]);
    }
    Ok(())
}

/// Rank `rank` of two: each sends a token to an expert at either rank and adds up what comes back.
fn team(rank: u32, pd: &Arc<Pd>, store: Arc<dyn Store>) -> Outcome<()> {
    let gpu = gpu::open(GpuSelector::Simt)?;
    let config = TeamConfig::new(rank, 2)
        .with_join_timeout(PATIENCE)
        .with_deadline(PATIENCE);
    let team = JoinOptions::new(config)
        .with_pds([pd])
        .with_gpu(&gpu)
        .with_store(store)
        .join()?;
    let shape = MoeConfig::BF16
        .with_hidden(64)
        .with_experts(4)
        .with_top_k(2)
        .with_max_tokens(16);
    let moe = Moe::new(&team, "layer", shape)?;
    let mut work = Workspace::new(&moe)?;
    for step in 0..STEPS {
        let x = vec![bf16::from_f32(1.0); 64];
        work.send(&Batch {
            x,
            experts: vec![0, 3],
            weights: vec![0.75, 0.25],
        })?;
        work.receive()?;
        work.experts(|expert, x, y| {
            for (y, &x) in y.iter_mut().zip(x) {
                *y = bf16::from_f32(bf16::to_f32(x) * (expert + 1) as f32);
            }
        })?;
        work.send_back()?;
        let combined = work.receive_back()?;
        let sum = bf16::to_f32(combined.out[0]);
        assert!((sum - 1.75).abs() < f32::EPSILON, "step {step}: {sum}");
    }
    team.barrier("done")?;
    Ok(())
}

/// Two QPs of the program, connected with each other.
struct Own {
    cq: *mut ibv_cq,
    qps: [*mut ibv_qp; 2],
    region: *mut ibv_mr,
}

impl Own {
    unsafe fn new(
        device: *mut ibv_context,
        domain: *mut ibv_pd,
        region: *mut ibv_mr,
        gid_index: u32,
    ) -> Outcome<Self> {
        // SAFETY: the objects are open; zeros are no values of the structs that libibverbs would not take.
        unsafe {
            let cq = ibv_create_cq(device, 16, null_mut(), null_mut(), 0);
            let mut init: ibv_qp_init_attr = zeroed();
            init.send_cq = cq;
            init.recv_cq = cq;
            init.qp_type = ibv_qp_type::IBV_QPT_RC;
            init.cap.max_send_wr = 4;
            init.cap.max_recv_wr = 4;
            init.cap.max_send_sge = 1;
            init.cap.max_recv_sge = 1;
            let qps = [(); 2].map(|()| ibv_create_qp(domain, &raw mut init));
            if cq.is_null() || qps.contains(&null_mut()) {
                return Err(std::io::Error::last_os_error().into());
            }
            for (nth, qp) in qps.iter().enumerate() {
                connect(device, *qp, (*qps[1 - nth]).qp_num, gid_index)?;
            }
            Ok(Self { cq, qps, region })
        }
    }

    /// A message from the first to the second, and its answer.
    unsafe fn round(&mut self, round: u64) -> Outcome<()> {
        // SAFETY: both halves of the region are the program's, and nothing is under way in it.
        unsafe {
            let memory = (*self.region).addr.cast::<u8>();
            let halves = [memory, memory.add(MESSAGE as usize)];
            for (from, seed) in [(0, round), (1, !round)] {
                let to = 1 - from;
                for at in 0..MESSAGE as usize {
                    halves[from].add(at).write_volatile(byte(seed, at));
                }
                self.receive(to, halves[to])?;
                self.send(from, halves[from])?;
                self.completions(2)?;
                for at in 0..MESSAGE as usize {
                    let got = halves[to].add(at).read_volatile();
                    assert_eq!(got, byte(seed, at), "round {round}, byte {at}");
                }
            }
        }
        Ok(())
    }

    unsafe fn sge(&self, at: *mut u8) -> ibv_sge {
        // SAFETY: a registered region.
        let lkey = unsafe { (*self.region).lkey };
        ibv_sge {
            addr: at as u64,
            length: MESSAGE,
            lkey,
        }
    }

    unsafe fn receive(&self, qp: usize, at: *mut u8) -> Outcome<()> {
        // SAFETY: the request is copied during the call.
        unsafe {
            let mut sge = self.sge(at);
            let mut request: ibv_recv_wr = zeroed();
            request.sg_list = &raw mut sge;
            request.num_sge = 1;
            let mut bad = null_mut();
            done(ibv_post_recv(self.qps[qp], &raw mut request, &raw mut bad))
        }
    }

    unsafe fn send(&self, qp: usize, at: *mut u8) -> Outcome<()> {
        // SAFETY: as in `receive`.
        unsafe {
            let mut sge = self.sge(at);
            let mut request: ibv_send_wr = zeroed();
            request.sg_list = &raw mut sge;
            request.num_sge = 1;
            request.opcode = ibv_wr_opcode::IBV_WR_SEND;
            request.send_flags = ibv_send_flags::IBV_SEND_SIGNALED.0;
            let mut bad = null_mut();
            done(ibv_post_send(self.qps[qp], &raw mut request, &raw mut bad))
        }
    }

    unsafe fn completions(&self, mut left: i32) -> Outcome<()> {
        let start = Instant::now();
        while left > 0 {
            // SAFETY: the CQ is open, and `entry` has room for one entry.
            let (found, status) = unsafe {
                let mut entry: ibv_wc = zeroed();
                (ibv_poll_cq(self.cq, 1, addr_of_mut!(entry)), entry.status)
            };
            if found < 0 || (found == 1 && status != ibv_wc_status::IBV_WC_SUCCESS) {
                return Err(format!("a completion with status {status}").into());
            }
            left -= found;
            if start.elapsed() > PATIENCE {
                return Err("no completion".into());
            }
            thread::yield_now();
        }
        Ok(())
    }

    unsafe fn close(self) {
        // SAFETY: nothing is under way.
        unsafe {
            let ended = self.qps.map(|qp| ibv_destroy_qp(qp));
            assert_eq!((ended, ibv_destroy_cq(self.cq)), ([0; 2], 0));
        }
    }
}

/// Byte `at` of a message.
fn byte(seed: u64, at: usize) -> u8 {
    seed.wrapping_add(at as u64).to_le_bytes()[0]
}

/// Takes a QP to RTS, towards one of the same port.
unsafe fn connect(
    device: *mut ibv_context,
    qp: *mut ibv_qp,
    peer: u32,
    gid_index: u32,
) -> Outcome<()> {
    use ibv_qp_attr_mask as mask;
    let bits = |all: &[ibv_qp_attr_mask]| all.iter().fold(0, |sum, one| sum | one.0).cast_signed();
    // SAFETY: the QP is open; the attributes are copied during the calls.
    unsafe {
        let mut attr: ibv_qp_attr = zeroed();
        attr.qp_state = ibv_qp_state::IBV_QPS_INIT;
        attr.port_num = 1;
        let init = [
            mask::IBV_QP_STATE,
            mask::IBV_QP_PKEY_INDEX,
            mask::IBV_QP_PORT,
            mask::IBV_QP_ACCESS_FLAGS,
        ];
        done(ibv_modify_qp(qp, &raw mut attr, bits(&init)))?;
        attr.qp_state = ibv_qp_state::IBV_QPS_RTR;
        attr.path_mtu = ibv_mtu::IBV_MTU_1024;
        attr.dest_qp_num = peer;
        attr.max_dest_rd_atomic = 1;
        attr.min_rnr_timer = 12;
        attr.ah_attr.is_global = 1;
        attr.ah_attr.port_num = 1;
        attr.ah_attr.grh.hop_limit = 64;
        attr.ah_attr.grh.sgid_index = u8::try_from(gid_index)?;
        let gid = &raw mut attr.ah_attr.grh.dgid;
        done(ibv_query_gid(device, 1, i32::try_from(gid_index)?, gid))?;
        let receive = [
            mask::IBV_QP_STATE,
            mask::IBV_QP_AV,
            mask::IBV_QP_PATH_MTU,
            mask::IBV_QP_DEST_QPN,
            mask::IBV_QP_RQ_PSN,
            mask::IBV_QP_MAX_DEST_RD_ATOMIC,
            mask::IBV_QP_MIN_RNR_TIMER,
        ];
        done(ibv_modify_qp(qp, &raw mut attr, bits(&receive)))?;
        attr.qp_state = ibv_qp_state::IBV_QPS_RTS;
        attr.timeout = 14;
        attr.retry_cnt = 7;
        attr.rnr_retry = 7;
        attr.max_rd_atomic = 1;
        let send = [
            mask::IBV_QP_STATE,
            mask::IBV_QP_TIMEOUT,
            mask::IBV_QP_RETRY_CNT,
            mask::IBV_QP_RNR_RETRY,
            mask::IBV_QP_SQ_PSN,
            mask::IBV_QP_MAX_QP_RD_ATOMIC,
        ];
        done(ibv_modify_qp(qp, &raw mut attr, bits(&send)))
    }
}

fn done(errno: i32) -> Outcome<()> {
    match errno {
        0 => Ok(()),
        errno => Err(std::io::Error::from_raw_os_error(errno).into()),
    }
}
