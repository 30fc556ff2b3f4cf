//! What drives the engines of a test: one provider, or two at the ends of a connection.

use std::cell::Cell;
use std::ops::RangeInclusive;
use std::sync::Arc;

use warpverbs::config::GidChoice;
use warpverbs::internal::engine::{Cause, Engine, EngineConfig, ProviderChoice};
use warpverbs::verbs::{Context, PlainContext};

/// Says for all tests of a run what drives their engines: a word of [`Driver::WORDS`].
pub(crate) const VARIABLE: &str = "WV_TEST_PROVIDER";
/// Remote access error, in a CQE.
const ACCESS: u8 = 0x13;

/// What drives the engines that the rig makes. The other end of a mixed connection is of mlx5.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Driver {
    #[default]
    Mlx5,
    /// Verbs, without DevX: the engine with the name `a`.
    VerbsFirst,
    /// All but the engine with the name `a`.
    VerbsOthers,
    Verbs,
    /// tcp;ofi_rxm of the installed libfabric, over the loopback.
    Tcp,
    /// shm of the installed libfabric.
    Shm,
    SoftOfi,
}

thread_local! {
    static DRIVER: Cell<Driver> = Cell::new(Driver::of_the_run());
    /// The number of engines and of processes that had a driver other than mlx5.
    static DRIVEN: Cell<u32> = const { Cell::new(0) };
}

impl Driver {
    pub(crate) const WORDS: [(&str, Self); 7] = [
        ("mlx5", Self::Mlx5),
        ("verbs-first", Self::VerbsFirst),
        ("verbs-others", Self::VerbsOthers),
        ("verbs", Self::Verbs),
        ("tcp", Self::Tcp),
        ("shm", Self::Shm),
        ("softofi", Self::SoftOfi),
    ];

    /// Returns the driver of this word.
    pub(crate) fn named(word: &str) -> Self {
        let known = Self::WORDS.into_iter().find(|(name, _)| *name == word);
        known.unwrap_or_else(|| panic!("{VARIABLE}={word}")).1
    }

    pub(crate) fn word(self) -> &'static str {
        let known = Self::WORDS.into_iter().find(|(_, driver)| *driver == self);
        known.map_or("", |(word, _)| word)
    }

    fn of_the_run() -> Self {
        std::env::var(VARIABLE).map_or(Self::Mlx5, |word| Self::named(&word))
    }

    /// Lets it drive the engines that this thread makes.
    pub(crate) fn begin(self) {
        DRIVER.set(self);
    }

    /// Runs a test whose engines this thread makes, or processes that it starts. Where the machine lacks the provider, it says so.
    pub(crate) fn run(self, test: impl FnOnce()) {
        if let Some(why) = self.lacks() {
            println!("left out: {}: {why}", self.word());
            return;
        }
        // The next test may run in this thread.
        let _back = Back(DRIVER.replace(self));
        DRIVEN.set(0);
        test();
        assert_ne!(DRIVEN.get(), 0, "no engine is driven by {}", self.word());
    }

    /// Returns why the machine lacks the provider. None: it is there.
    pub(crate) fn lacks(self) -> Option<String> {
        let choice = self.by_libfabric(EngineConfig::new("finder"))?;
        let error = Engine::choose_devices(&choice).err()?.to_string();
        let absent = ["WARPVERBS_LIBFABRIC names another file", "has no provider"];
        assert!(absent.iter().any(|it| error.contains(it)), "{error}");
        Some(error)
    }

    /// Returns the configuration that finds the domain. None: libfabric does not drive it.
    fn by_libfabric(self, config: EngineConfig) -> Option<EngineConfig> {
        let by = |name: &str| config.with_provider(ProviderChoice::Ofi(Some(name.to_owned())));
        match self {
            Self::Mlx5 | Self::VerbsFirst | Self::VerbsOthers | Self::Verbs => None,
            Self::Tcp => Some(by("tcp;ofi_rxm").with_device("lo".parse().unwrap())),
            Self::Shm => Some(by("shm")),
            Self::SoftOfi => Some(by("efa").with_libfabric(Some(softofi::library().unwrap()))),
        }
    }

    fn is_by_verbs(self, name: &str) -> bool {
        match self {
            Self::VerbsFirst => name == "a",
            Self::VerbsOthers => name != "a",
            Self::Verbs => true,
            Self::Mlx5 | Self::Tcp | Self::Shm | Self::SoftOfi => false,
        }
    }
}

/// Gives the thread its driver back.
struct Back(Driver);

impl Drop for Back {
    fn drop(&mut self) {
        DRIVER.set(self.0);
    }
}

/// Returns the word for a process that the test starts, whose engines have the driver of this thread.
pub(crate) fn word_for_a_process() -> &'static str {
    count();
    DRIVER.get().word()
}

/// Returns the `syndrome` of the cause if a peer's NIC has refused access. Providers of libfabric have a number of their own beside it.
pub(crate) fn access() -> u8 {
    match DRIVER.get() {
        Driver::Tcp | Driver::Shm | Driver::SoftOfi => Cause::LIBFABRIC,
        _ => ACCESS,
    }
}

/// Returns how many resets of QPs the slices of one transfer with a wrong key may take. tcp;ofi_rxm of libfabric says of such a key only
/// that the connection has gone, so each slice is tried again, as often as WARPVERBS_ENGINE_RETRY has it.
pub(crate) fn resets_by_a_wrong_key(slices: u64) -> RangeInclusive<u64> {
    match DRIVER.get() {
        Driver::Tcp => 1..=4 * slices,
        _ => 1..=1,
    }
}

/// Returns whether the NIC places operations of one QP whole and in their order. softofi places parts of them in any order.
pub(crate) fn keeps_order() -> bool {
    DRIVER.get() != Driver::SoftOfi
}

/// An engine on the device of `context`, or on a domain of libfabric that takes its place.
pub(crate) fn engine_on(context: &Arc<Context>, config: EngineConfig) -> Engine {
    let driver = DRIVER.get();
    // The domain is found with the defaults: what a test says of ports is for the HCA.
    if let Some(choice) = driver.by_libfabric(EngineConfig::new("finder")) {
        count();
        let found = Engine::choose_devices(&choice).unwrap();
        return Engine::new(&found.devices[0], config).unwrap();
    }
    if driver.is_by_verbs(&config.name) {
        count();
        let port = Some(context.port().number);
        let plain = PlainContext::open(context.name(), port, &GidChoice::Auto).unwrap();
        return Engine::new(&plain, config).unwrap();
    }
    Engine::new(context, config).unwrap()
}

fn count() {
    DRIVEN.set(DRIVEN.get() + 1);
}

/// Makes a test of each of these, for engines of this driver.
macro_rules! driven {
    ($driver:expr, $($module:ident::$test:ident,)+) => {
        $(
            #[test]
            fn $test() {
                $driver.run(crate::$module::$test);
            }
        )+
    };
}

pub(crate) use driven;
