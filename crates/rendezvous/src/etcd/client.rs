//! Requests to an etcd: HTTP with JSON to its gateway.
//!
//! A request is sent once, to one member. If its answer does not come, it is not sent again: the caller gets the error within the bound of
//! its call, and the next call asks the next member. The client goes on to the next member at once only if it could not send the request to
//! the one before. It tries each member once. A token that the etcd has forgotten is replaced once. When the answer to a change is lost,
//! the client cannot know whether the change was made, and its error says that.

use std::io::{self, ErrorKind};
use std::ops::RangeInclusive;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use ureq::tls::TlsConfig;
use ureq::{Agent, Body, Timeout, http::Response};

use super::address::User;
use super::messages::{Authenticated, Refusal};
use crate::StoreError;

const CONNECT: Duration = Duration::from_secs(1);
/// Longest wait for a token before a stream is opened.
const TOKEN: Duration = Duration::from_secs(2);
/// The most bytes of an answer.
const MAX_ANSWER: u64 = 64 << 20;

/// The HTTP statuses by which a balancer says that it got no answer: bad gateway, unavailable, gateway timeout.
const BALANCER: RangeInclusive<u16> = 502..=504;

/// The status codes of gRPC.
const CANCELLED: u32 = 1;
const UNKNOWN: u32 = 2;
const DEADLINE_EXCEEDED: u32 = 4;
pub(super) const NOT_FOUND: u32 = 5;
const ABORTED: u32 = 10;
const INTERNAL: u32 = 13;
const UNAVAILABLE: u32 = 14;
const UNAUTHENTICATED: u32 = 16;

/// The members of one etcd.
#[derive(Debug)]
pub(super) struct Client {
    agent: Agent,
    tls: Option<TlsConfig>,
    members: Vec<String>,
    /// The member that answered last.
    current: AtomicUsize,
    user: Option<User>,
    token: Mutex<Option<String>>,
}

/// Why a call has no result.
#[derive(Debug)]
pub(super) enum CallError {
    /// The request was refused. It was not done, and will not be done.
    Refused { code: u32, message: String },
    /// No member could be asked in time. Nothing was done.
    Unreachable { waited: Duration, cause: String },
    /// A change was sent, and no answer came.
    NoAnswer { waited: Duration, cause: String },
}

/// What a request does.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// The request changes nothing, or its change does not matter if the answer is lost.
    Asks,
    Changes,
}

/// How one attempt failed.
enum Failure {
    Refused(Refusal),
    /// The token is unknown, or the request had none.
    Token(Refusal),
    /// The request was not sent.
    NotSent(String),
    NoAnswer(String),
}

impl Client {
    /// Makes a client. Without `tls` it sends everything in plain text.
    pub(super) fn new(members: Vec<String>, user: Option<User>, tls: Option<TlsConfig>) -> Self {
        Self {
            agent: agent(tls.as_ref(), 8),
            tls,
            members,
            current: AtomicUsize::new(0),
            user,
            token: Mutex::default(),
        }
    }

    /// Returns an agent with connections of its own.
    pub(super) fn other_agent(&self) -> Agent {
        agent(self.tls.as_ref(), 1)
    }

    /// Returns the members, for messages.
    pub(super) fn name(&self) -> String {
        self.members.join(",")
    }

    /// Sends a request that may be sent twice.
    pub(super) fn ask<T: DeserializeOwned>(
        &self,
        path: &str,
        body: &Value,
        until: Instant,
    ) -> Result<T, CallError> {
        let answer = self.call(path, body, until, Kind::Asks)?;
        parse(&answer).map_err(|message| CallError::Refused { code: 0, message })
    }

    /// Sends a change.
    pub(super) fn change<T: DeserializeOwned>(
        &self,
        path: &str,
        body: &Value,
        until: Instant,
    ) -> Result<T, CallError> {
        let start = Instant::now();
        let answer = self.call(path, body, until, Kind::Changes)?;
        parse(&answer).map_err(|cause| CallError::NoAnswer {
            waited: start.elapsed(),
            cause,
        })
    }

    fn call(
        &self,
        path: &str,
        body: &Value,
        until: Instant,
        kind: Kind,
    ) -> Result<Vec<u8>, CallError> {
        let start = Instant::now();
        let body = body.to_string();
        let unreachable = |cause| CallError::Unreachable {
            waited: start.elapsed(),
            cause,
        };
        let mut may_ask_for_token = self.user.is_some();
        let mut members = self.members.len();
        let mut cause = "the time of the call was over".to_owned();
        loop {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() || members == 0 {
                return Err(unreachable(cause));
            }
            let answer = self
                .authorised(left)
                .and_then(|()| self.attempt(path, &body, left));
            match answer {
                Ok(answer) => return Ok(answer),
                Err(Failure::Token(_)) if may_ask_for_token => {
                    may_ask_for_token = false;
                    self.forget_token();
                }
                Err(
                    Failure::Refused(Refusal { code, message })
                    | Failure::Token(Refusal { code, message }),
                ) => return Err(CallError::Refused { code, message }),
                Err(Failure::NoAnswer(cause)) => {
                    self.pass_over();
                    return Err(match kind {
                        Kind::Asks => unreachable(cause),
                        Kind::Changes => CallError::NoAnswer {
                            waited: start.elapsed(),
                            cause,
                        },
                    });
                }
                Err(Failure::NotSent(why)) => {
                    self.pass_over();
                    members -= 1;
                    cause = why;
                }
            }
        }
    }

    /// Returns the agent of calls.
    pub(super) fn agent(&self) -> &Agent {
        &self.agent
    }

    /// Opens a stream at the current member. The stream lasts at most for `limit`.
    pub(super) fn stream(
        &self,
        agent: &Agent,
        path: &str,
        body: &Value,
        limit: Duration,
    ) -> Result<Response<Body>, CallError> {
        let start = Instant::now();
        let opened = self
            .authorised(TOKEN.min(limit))
            .and_then(|()| self.send(agent, path, &body.to_string(), limit));
        opened.map_err(|failure| match failure {
            Failure::Refused(Refusal { code, message })
            | Failure::Token(Refusal { code, message }) => CallError::Refused { code, message },
            Failure::NotSent(cause) | Failure::NoAnswer(cause) => {
                self.pass_over();
                CallError::Unreachable {
                    waited: start.elapsed(),
                    cause,
                }
            }
        })
    }

    /// Forgets the token, which the etcd no longer takes.
    pub(super) fn forget_token(&self) {
        *self.token.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }

    /// Gets a token if a user is named and no token is held.
    fn authorised(&self, limit: Duration) -> Result<(), Failure> {
        let Some(user) = &self.user else {
            return Ok(());
        };
        let known = self.token.lock().unwrap_or_else(PoisonError::into_inner);
        if known.is_some() {
            return Ok(());
        }
        drop(known);
        let body = json!({"name": user.name, "password": user.password}).to_string();
        let answer = match self.attempt("auth/authenticate", &body, limit) {
            // The call's own request was not sent yet.
            Err(Failure::NoAnswer(cause)) => return Err(Failure::NotSent(cause)),
            Err(Failure::Token(refusal)) => return Err(Failure::Refused(refusal)),
            other => other?,
        };
        let answer: Authenticated = parse(&answer).map_err(Failure::NotSent)?;
        *self.token.lock().unwrap_or_else(PoisonError::into_inner) = Some(answer.token);
        Ok(())
    }

    /// Sends one request to one member and reads the answer.
    fn attempt(&self, path: &str, body: &str, limit: Duration) -> Result<Vec<u8>, Failure> {
        let mut response = self.send(&self.agent, path, body, limit)?;
        let body = response.body_mut().with_config().limit(MAX_ANSWER);
        let answer = body.read_to_vec();
        answer.map_err(|error| Failure::NoAnswer(error.to_string()))
    }

    fn send(
        &self,
        agent: &Agent,
        path: &str,
        body: &str,
        limit: Duration,
    ) -> Result<Response<Body>, Failure> {
        let member = &self.members[self.current.load(Ordering::Relaxed) % self.members.len()];
        let scheme = if self.tls.is_some() { "https" } else { "http" };
        let mut request = agent
            .post(format!("{scheme}://{member}/v3/{path}"))
            .header("Content-Type", "application/json");
        let token = self.token.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(token) = token.as_deref() {
            request = request.header("Authorization", token);
        }
        drop(token);
        let request = request.config().timeout_global(Some(limit)).build();
        let mut response = request.send(body).map_err(|error| failed(member, &error))?;
        if response.status().is_success() {
            return Ok(response);
        }
        let status = response.status();
        let body = response.body_mut().with_config().limit(1 << 16);
        let text = body.read_to_vec().unwrap_or_default();
        Err(match serde_json::from_slice::<Refusal>(&text) {
            Ok(refusal) if refusal.code != 0 => refused(refusal),
            // The balancer does not reach the etcd, or got no answer from it. What became of the request is unknown.
            _ if BALANCER.contains(&status.as_u16()) => Failure::NoAnswer(format!(
                "{member} answers /v3/{path} with {status}: a balancer that reaches no etcd"
            )),
            _ => Failure::Refused(Refusal {
                code: NOT_FOUND,
                message: format!(
                    "{member} answers /v3/{path} with {status}: no etcd of 3.4 or later"
                ),
            }),
        })
    }

    /// Makes the next call ask the next member.
    fn pass_over(&self) {
        self.current.fetch_add(1, Ordering::Relaxed);
    }

    /// Returns the error of a request that changes nothing, or of a change of a key whose revision was `seen`.
    pub(super) fn error(&self, error: CallError, seen: u64) -> StoreError {
        let store = self.name();
        match error {
            CallError::Refused { mut message, .. } => {
                if self.user.is_none() && message.contains("user name is empty") {
                    message.push_str(": its address names none (etcd://USER:PASSWORD@..)");
                }
                StoreError::Refused { store, message }
            }
            CallError::Unreachable { waited, cause } => StoreError::Unreachable {
                store,
                waited,
                cause,
            },
            CallError::NoAnswer { waited, cause } => StoreError::NoAnswer {
                store,
                waited,
                seen,
                cause,
            },
        }
    }
}

/// Returns an agent that keeps to the configuration: no proxy, and no redirection to another place or to plain text.
fn agent(tls: Option<&TlsConfig>, idle: usize) -> Agent {
    let config = Agent::config_builder()
        .proxy(None)
        .http_status_as_error(false)
        .max_redirects(0)
        .timeout_connect(Some(CONNECT))
        .max_idle_connections_per_host(idle);
    let config = match tls {
        Some(tls) => config.https_only(true).tls_config(tls.clone()),
        None => config,
    };
    config.build().into()
}

/// Returns the meaning of a refusal.
fn refused(refusal: Refusal) -> Failure {
    // An etcd of 3.4 gives this message when users have changed since the token was given.
    let old = refusal.message.contains("revision of auth store is old");
    match refusal.code {
        UNAUTHENTICATED => Failure::Token(refusal),
        _ if old => Failure::Token(refusal),
        CANCELLED | UNKNOWN | DEADLINE_EXCEEDED | ABORTED | INTERNAL | UNAVAILABLE => {
            Failure::NoAnswer(refusal.message)
        }
        _ => Failure::Refused(refusal),
    }
}

/// Returns the meaning of an error of the connection.
fn failed(member: &str, error: &ureq::Error) -> Failure {
    let cause = format!("{member}: {error}");
    // A certificate is judged before anything is sent.
    let refused = |error: &io::Error| {
        error.kind() == ErrorKind::ConnectionRefused
            || error.to_string().starts_with("invalid peer certificate")
    };
    match error {
        ureq::Error::HostNotFound
        | ureq::Error::ConnectionFailed
        | ureq::Error::Timeout(Timeout::Resolve | Timeout::Connect) => Failure::NotSent(cause),
        ureq::Error::Io(error) if refused(error) => Failure::NotSent(cause),
        _ => Failure::NoAnswer(cause),
    }
}

fn parse<T: DeserializeOwned>(answer: &[u8]) -> Result<T, String> {
    serde_json::from_slice(answer)
        .map_err(|error| format!("an answer that is none of etcd's: {error}"))
}
