//! Rules of the manual that a program has broken: each is a line on stderr and a number for tests.

use std::fmt::{self, Display};
use std::fs::OpenOptions;
use std::io::Write;
use std::sync::{Mutex, PoisonError};

use libfabric_abi::errors::{
    FI_EACCES, FI_EBADFLAGS, FI_EBUSY, FI_EINVAL, FI_EMSGSIZE, FI_ENOAV, FI_ENOCQ, FI_ENODATA,
    FI_ENOSYS, FI_EOPBADSTATE, FI_EOPNOTSUPP, FI_EOVERRUN,
};

use crate::config::of_environment;
use crate::counts::Count;

macro_rules! rules {
    ($($name:ident $error:ident $short:literal $text:literal;)*) => {
        /// A rule. The documentation of each is the text that is shown.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[repr(u32)]
        pub enum Rule {
            $(#[doc = $text] $name,)*
        }

        impl Rule {
            /// All of them, in the order of their numbers.
            pub const ALL: &[Self] = &[$(Self::$name),*];

            /// The name in a line of the log.
            #[must_use]
            pub fn name(self) -> &'static str {
                match self { $(Self::$name => $short,)* }
            }

            fn text(self) -> &'static str {
                match self { $(Self::$name => $text,)* }
            }

            fn error(self) -> i32 {
                match self { $(Self::$name => $error,)* }
            }
        }
    };
}

rules! {
    ClosedHandle FI_EOPBADSTATE "closed-handle" "An object is used after fi_close.";
    UnknownHandle FI_EINVAL "unknown-handle" "A pointer is no object of this library.";
    OtherHandle FI_EINVAL "other-handle" "An object is of another kind than the call takes.";
    NullPointer FI_EINVAL "null-pointer" "A pointer must not be null.";
    ApiVersion FI_ENOSYS "api-version" "The API version asked for is above that of the library.";
    NotEnabled FI_EOPBADSTATE "not-enabled" "An endpoint that is not enabled posts, or is asked for its address.";
    Enabled FI_EOPBADSTATE "enabled" "An endpoint that is enabled is bound, set or enabled again.";
    NoQueue FI_ENOCQ "no-queue" "An endpoint is enabled without a completion queue for what it sends.";
    NoVector FI_ENOAV "no-vector" "An endpoint is enabled without an address vector.";
    OtherDomain FI_EINVAL "other-domain" "Objects of two domains are bound to each other.";
    Capability FI_EOPNOTSUPP "capability" "An endpoint posts what its capabilities do not have.";
    Flags FI_EBADFLAGS "flags" "A flag is not served here.";
    TooLong FI_EMSGSIZE "too-long" "An operation is longer than max_msg_size.";
    TooManyRanges FI_EINVAL "too-many-ranges" "An operation has more ranges than iov_limit or rma_iov_limit.";
    UnequalRanges FI_EINVAL "unequal-ranges" "The ranges of both sides do not have the same length.";
    Inline FI_EINVAL "inline" "An inline operation is longer than the endpoint takes.";
    UnknownAddress FI_EINVAL "unknown-address" "The address vector has no such entry.";
    BadAddress FI_EINVAL "bad-address" "What is inserted is no address of this provider.";
    NoDescriptor FI_EINVAL "no-descriptor" "FI_MR_LOCAL: an operation has no descriptor of its memory.";
    UnknownDescriptor FI_EINVAL "unknown-descriptor" "A descriptor is of no registration that is open.";
    OutsideRegistration FI_EINVAL "outside-registration" "A range is not inside the registration that it names.";
    LocalAccess FI_EACCES "local-access" "A registration does not have the access that the operation needs.";
    ContextMissing FI_EINVAL "context-missing" "FI_CONTEXT2: an operation has no context.";
    ContextUnaligned FI_EINVAL "context-unaligned" "FI_CONTEXT2: a context is not aligned to 8 bytes.";
    ContextInUse FI_EINVAL "context-in-use" "FI_CONTEXT2: a context is used again before its completion was read.";
    ContextOverwritten FI_EINVAL "context-overwritten" "FI_CONTEXT2: a program has written into a context that is in use.";
    CqOverrun FI_EOVERRUN "cq-overrun" "A completion queue had more completions than room, and is lost.";
    CqOverbooked FI_EOVERRUN "cq-overbooked" "More operations are under way than their completion queue has room for.";
    CloseInUse FI_EBUSY "close-in-use" "An object is closed that others use.";
    TrywaitWithoutObject FI_EINVAL "trywait-without-object" "fi_trywait is asked about a completion queue without a wait object.";
    NoWaitObject FI_ENODATA "no-wait-object" "A completion queue without a wait object is asked for it, or slept on.";
    WaitObject FI_ENOSYS "wait-object" "A wait object is asked for that the provider does not have.";
    Format FI_ENOSYS "format" "A format of completions is asked for that the provider does not have.";
    CqData FI_EINVAL "cq-data" "Data for the peer's completion queue is wider than cq_data_size.";
    Access FI_EINVAL "access" "A registration has no access, or bits that are none.";
    DmaBufVersion FI_EINVAL "dmabuf-version" "FI_MR_DMABUF with an API version before 1.20.";
    MemoryGone FI_EINVAL "memory-gone" "Memory of an operation was unmapped while it was under way.";
    RemoveInUse FI_EBUSY "remove-in-use" "An address is removed to which operations are under way.";
}

static LAST: Mutex<Vec<String>> = Mutex::new(Vec::new());
/// More are counted and not kept.
const KEPT: usize = 1000;

impl Rule {
    /// Reports that it was broken, with what tells which call. It returns the error for that call, positive.
    pub(crate) fn broken(self, detail: impl Display) -> i32 {
        Count::Rules.add();
        let line = Line { rule: self, detail }.to_string();
        say(&format!("softofi[{}]: {line}", std::process::id()));
        if let Ok(environment) = of_environment()
            && let Some(path) = &environment.config.log
            && let Ok(mut file) = OpenOptions::new().create(true).append(true).open(path)
        {
            // A log that cannot be written is no reason to fail: the line is on stderr.
            let _ = file.write_all(format!("{line}\n").as_bytes());
        }
        let mut last = LAST.lock().unwrap_or_else(PoisonError::into_inner);
        if last.len() < KEPT {
            last.push(line);
        }
        self.error()
    }
}

/// Writes a line for people. Unlike `eprintln!` it does not mind a program without stderr.
pub(crate) fn say(line: &str) {
    let _ = writeln!(std::io::stderr(), "{line}");
}

struct Line<D> {
    rule: Rule,
    detail: D,
}

impl<D: Display> Display for Line<D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{}: {} {}",
            self.rule.name(),
            self.rule.text(),
            self.detail
        )
    }
}

/// The line of a rule that was broken, by its number from the start of the process.
pub(crate) fn line(number: usize) -> Option<String> {
    let last = LAST.lock().unwrap_or_else(PoisonError::into_inner);
    last.get(number).cloned()
}
