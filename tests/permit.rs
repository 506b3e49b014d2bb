//! Permits from the outside: what is signed, what a verifier takes, and everything it must not take.

#![expect(clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::LazyLock;
use std::time::Duration;

use coset::cbor::value::Value;
use coset::{CborSerializable as _, CoseSign1Builder, HeaderBuilder, TaggedCborSerializable as _, iana};
use ed25519_dalek::Signer as _;
use proptest::prelude::*;
use steadfast::calibration::Limits;
use steadfast::decision::{self, Case, Decision, Leave, Readings, Reason, Tier};
use steadfast::margin::Margin;
use steadfast::permit::keys::{
    ARCHIVE_KEYS_MAX, KEYS_MAX, KeyError, Keys, OVERLAP_DEFAULT, PublicKeys, SigningKey, system_random,
};
use steadfast::permit::nonces::{NonceFile, NonceStore as _, SpendError};
use steadfast::permit::verify::{Bound, Clock, Expectation, Parts, Rejection, Verifier};
use steadfast::permit::{
    self, BootId, Grant, GrantError, LIFETIME_MAX, LIFETIME_MIN, Malformed, Moment, Nonce, PERMIT_BYTES_MAX,
};
use steadfast::plan::Stance;
use steadfast::statistics::{Finite, Share};
use steadfast::triple::{Digest, Digests};
use zeroize::Zeroizing;

/// What `tests/reference/permit/make_vectors.py` wrote, without any of our code.
#[derive(serde::Deserialize)]
struct Vectors {
    seed: String,
    public: String,
    kid: String,
    instruction: String,
    image: String,
    plan: String,
    permit: String,
    release: String,
}

struct World {
    seed: [u8; 32],
    public: [u8; 32],
    kid: String,
    parts: [Vec<u8>; 3],
    permit: Vec<u8>,
    release: Vec<u8>,
}

static WORLD: LazyLock<World> = LazyLock::new(|| {
    let text = include_str!("reference/permit/vectors.json");
    let vectors: Vectors = serde_json::from_str(text).expect("the committed vectors");
    let bytes = |digits: &str| hex::decode(digits).expect("hexadecimal");
    World {
        seed: bytes(&vectors.seed).try_into().expect("32 bytes"),
        public: bytes(&vectors.public).try_into().expect("32 bytes"),
        kid: vectors.kid,
        parts: [bytes(&vectors.instruction), bytes(&vectors.image), bytes(&vectors.plan)],
        permit: bytes(&vectors.permit),
        release: bytes(&vectors.release),
    }
});

const BOOT: BootId =
    BootId([0x10, 0x11, 0x12, 0x13, 0x14, 0x15, 0x16, 0x17, 0x18, 0x19, 0x1a, 0x1b, 0x1c, 0x1d, 0x1e, 0x1f]);
const ISSUED: Moment = Moment { unix_s: 1_800_000_000, boot_id: BOOT, boottime_ns: 5_000_000_000 };

fn digests() -> Digests {
    let [instruction, image, plan] = &WORLD.parts;
    Digests::of(instruction, image, plan)
}

fn leave() -> Leave {
    let readings = Readings {
        tier: Tier::MarginOnly,
        fallback: None,
        margin: Margin::new(2.0).expect("finite"),
        refuse_log_odds: -2.0,
        spread: Some(0.1),
        copies: 20,
        flip_share: Some(0.0),
        reliance: Some(0.2),
        trace_ambiguity: vec![],
        forced_spread: None,
        traced_spread: None,
        decoding_instability: None,
        malleability: Some(0.1),
    };
    let case =
        Case { digests: digests(), stance: Stance::Complied, broken_limits: vec![], readings, refused_before: false };
    let share = |value| Share::new(value).expect("a share");
    let limits = Limits {
        refuse_log_odds_max: Finite::new(0.0).expect("finite"),
        malleability_max: share(0.5),
        flip_share_max: share(0.5),
    };
    match decision::decide(case, &limits) {
        Decision::Permit(leave) => leave,
        other @ (Decision::Veto(_) | Decision::Refusal(_)) => panic!("{other:?}"),
    }
}

fn grant() -> Grant {
    Grant {
        issuer: "steadfast-test".to_owned(),
        audience: "arm-1".to_owned(),
        check_id: "check-1".to_owned(),
        constitution: Digest::of(b"constitution"),
        proxy: Digest::of(b"proxy"),
        calibration: Digest::of(b"calibration"),
        now: ISSUED,
        lifetime: Duration::from_millis(30_500),
        nonce: Nonce(std::array::from_fn(|i| u8::try_from(i).expect("small"))),
    }
}

fn key() -> SigningKey {
    SigningKey::from_seed(&WORLD.seed)
}

fn verifier() -> Verifier {
    Verifier::new(PublicKeys::new(vec![key().public()]).expect("one key"))
}

fn parts() -> Parts<'static> {
    let [instruction, image, plan] = &WORLD.parts;
    Parts { instruction, image, plan }
}

fn at(seconds: u64) -> Moment {
    Moment { unix_s: ISSUED.unix_s + seconds, boottime_ns: ISSUED.boottime_ns + seconds * 1_000_000_000, ..ISSUED }
}

fn expectation() -> Expectation<'static> {
    Expectation::new("steadfast-test", "arm-1", Clock::SameMachine(at(1)))
}

fn examine(token: &[u8]) -> Result<permit::Claims, Rejection> {
    verifier().examine(token, parts(), &expectation())
}

#[test]
fn our_bytes_equal_the_ones_other_libraries_make() {
    assert_eq!(key().public().as_bytes(), &WORLD.public);
    assert_eq!(key().id().to_string(), WORLD.kid);
    let token = permit::sign(&leave(), &grant(), &key()).expect("within limits");
    assert_eq!(hex::encode(&token), hex::encode(&WORLD.permit));
    let who = "uid 1000".to_owned();
    let note = "the blade is a toy, seen on site".to_owned();
    let release = decision::release(digests(), Reason::Malleable, who, note).expect("a judgement");
    let token = permit::sign(&release, &grant(), &key()).expect("within limits");
    assert_eq!(hex::encode(&token), hex::encode(&WORLD.release));
}

#[test]
fn a_permit_says_everything_it_was_given() {
    let claims = examine(&WORLD.permit).expect("a good permit");
    let grant = grant();
    assert_eq!(claims.digests, digests());
    assert_eq!((claims.issuer, claims.audience, claims.check_id), (grant.issuer, grant.audience, grant.check_id));
    assert_eq!(
        (claims.constitution, claims.proxy, claims.calibration),
        (grant.constitution, grant.proxy, grant.calibration)
    );
    assert_eq!((claims.issued_unix_s, claims.expires_unix_s), (ISSUED.unix_s, ISSUED.unix_s + 30));
    assert_eq!((claims.boot_id, claims.deadline_boottime_ns), (BOOT, ISSUED.boottime_ns + 30_500_000_000));
    assert_eq!((claims.nonce, claims.released), (grant.nonce, None));
    let released = examine(&WORLD.release).expect("a good release").released.expect("names who and why");
    assert_eq!((released.vetoed, released.who.as_str()), (Reason::Malleable, "uid 1000"));
    assert_eq!(released.note, "the blade is a toy, seen on site");
}

#[test]
fn each_expectation_is_compared() {
    type Change = fn(&mut Expectation<'static>);
    let moment = |change: fn(&mut Moment)| {
        let mut moment = at(1);
        change(&mut moment);
        Clock::SameMachine(moment)
    };
    let rows: [(&str, Change, Rejection); 8] = [
        ("issuer", |e| e.issuer = "other", Rejection::Issuer("steadfast-test".to_owned())),
        ("audience", |e| e.audience = "arm-2", Rejection::Audience("arm-1".to_owned())),
        ("constitution", |e| e.constitution = Some(Digest::of(b"x")), Rejection::Mismatch(Bound::Constitution)),
        ("proxy", |e| e.proxy = Some(Digest::of(b"x")), Rejection::Mismatch(Bound::Proxy)),
        ("calibration", |e| e.calibration = Some(Digest::of(b"x")), Rejection::Mismatch(Bound::Calibration)),
        (
            "past",
            |e| e.clock = Clock::SameMachine(Moment { unix_s: ISSUED.unix_s - 1, ..at(1) }),
            Rejection::IssuedAhead { ahead_s: 1 },
        ),
        (
            "expiry",
            |e| e.clock = Clock::SameMachine(Moment { unix_s: ISSUED.unix_s + 30, ..at(1) }),
            Rejection::Expired { ago_s: 0 },
        ),
        ("boot", |e| e.clock = Clock::SameMachine(Moment { boot_id: BootId([0; 16]), ..at(1) }), Rejection::Boot),
    ];
    for (name, change, expected) in rows {
        let mut expectation = expectation();
        change(&mut expectation);
        assert_eq!(verifier().examine(&WORLD.permit, parts(), &expectation), Err(expected), "{name}");
    }
    let deadline = ISSUED.boottime_ns + 30_500_000_000;
    let on_boot_clock = |boottime_ns| {
        let clock = Clock::SameMachine(Moment { boottime_ns, ..at(1) });
        verifier().examine(&WORLD.permit, parts(), &Expectation { clock, ..expectation() })
    };
    assert!(on_boot_clock(deadline - 1).is_ok());
    assert_eq!(on_boot_clock(deadline), Err(Rejection::DeadlinePassed { ago_ns: 0 }));
    assert_eq!(on_boot_clock(deadline + 7), Err(Rejection::DeadlinePassed { ago_ns: 7 }));
    let strict = Expectation { releases: false, clock: moment(|_| {}), ..expectation() };
    assert_eq!(verifier().examine(&WORLD.release, parts(), &strict), Err(Rejection::Release));
    assert!(verifier().examine(&WORLD.permit, parts(), &strict).is_ok());
}

#[test]
fn elsewhere_the_wall_clock_counts_with_at_most_the_leeway_asked_for() {
    let here = |unix_s, leeway_s| {
        let clock = Clock::Elsewhere { unix_s, leeway_s };
        verifier().examine(&WORLD.permit, parts(), &Expectation { clock, ..expectation() }).is_ok()
    };
    let (issued, expires) = (ISSUED.unix_s, ISSUED.unix_s + 30);
    assert!(here(issued, 0) && here(expires - 1, 0));
    assert!(!here(issued - 1, 0) && !here(expires, 0));
    assert!(here(expires + 4, 5) && here(issued - 5, 5));
    assert!(!here(expires + 5, 60), "leeway is capped");
    assert!(!here(issued - 6, u64::MAX));
}

#[test]
fn the_bytes_about_to_run_are_what_counts() {
    let [instruction, image, plan] = &WORLD.parts;
    for which in 0..3 {
        for bit in 0..WORLD.parts[which].len() * 8 {
            let mut changed = [instruction.clone(), image.clone(), plan.clone()];
            changed[which][bit / 8] ^= 1 << (bit % 8);
            let parts = Parts { instruction: &changed[0], image: &changed[1], plan: &changed[2] };
            let bound = [Bound::Instruction, Bound::Image, Bound::Plan][which];
            assert_eq!(
                verifier().examine(&WORLD.permit, parts, &expectation()),
                Err(Rejection::Mismatch(bound)),
                "bit {bit} of part {which}"
            );
        }
    }
}

#[test]
fn no_single_bit_of_a_token_can_be_changed() {
    for token in [&WORLD.permit, &WORLD.release] {
        for bit in 0..token.len() * 8 {
            let mut changed = token.clone();
            changed[bit / 8] ^= 1 << (bit % 8);
            assert!(examine(&changed).is_err(), "bit {bit}");
        }
        for end in 0..token.len() {
            assert!(examine(&token[..end]).is_err(), "cut at {end}");
        }
    }
}

proptest! {
    #[test]
    fn no_mutation_of_a_token_verifies(
        edits in prop::collection::vec((any::<prop::sample::Index>(), 0_u8..4, any::<u8>()), 1..6),
    ) {
        let mut token = WORLD.permit.clone();
        for (index, kind, byte) in edits {
            if token.is_empty() {
                break;
            }
            let place = index.index(token.len());
            match kind {
                0 => token[place] = byte,
                1 => token.insert(place, byte),
                2 => drop(token.remove(place)),
                _ => token.truncate(place.max(1)),
            }
        }
        prop_assume!(token != WORLD.permit);
        prop_assert!(examine(&token).is_err());
    }

    #[test]
    fn no_mutation_of_a_triple_verifies(
        which in 0_usize..3,
        edits in prop::collection::vec((any::<prop::sample::Index>(), 0_u8..3, any::<u8>()), 1..6),
    ) {
        let mut changed = WORLD.parts.clone();
        for (index, kind, byte) in edits {
            let part = &mut changed[which];
            let place = index.index(part.len().max(1));
            match kind {
                0 if place < part.len() => part[place] = byte,
                2 if place < part.len() => drop(part.remove(place)),
                _ => part.insert(place.min(part.len()), byte),
            }
        }
        prop_assume!(changed != WORLD.parts);
        let parts = Parts { instruction: &changed[0], image: &changed[1], plan: &changed[2] };
        prop_assert!(verifier().examine(&WORLD.permit, parts, &expectation()).is_err());
    }

    #[test]
    fn no_bytes_make_the_reader_fall_over(bytes in prop::collection::vec(any::<u8>(), 0..600)) {
        prop_assert!(examine(&bytes).is_err());
        let mut tagged = vec![0xd2, 0x84];
        tagged.extend(&bytes);
        prop_assert!(examine(&tagged).is_err());
    }

    #[test]
    fn every_grant_within_its_limits_reads_back(
        names in prop::array::uniform3("[^\\p{Cc}]{1,21}"),
        nonce in any::<[u8; 16]>(),
        unix_s in 0_u64..4_000_000_000,
        boottime_ns in 0_u64..u64::MAX / 2,
        lifetime_s in 2_u64..=600,
    ) {
        let [issuer, audience, check_id] = names;
        prop_assume!(check_id.len() <= 64);
        let now = Moment { unix_s, boottime_ns, ..ISSUED };
        let nonce = Nonce(nonce);
        let grant = Grant { issuer, audience, check_id, now, lifetime: Duration::from_secs(lifetime_s), nonce, ..grant() };
        let token = permit::sign(&leave(), &grant, &key()).expect("within limits");
        let expectation = Expectation::new(&grant.issuer, &grant.audience, Clock::SameMachine(now));
        let claims = verifier().examine(&token, parts(), &expectation).expect("a good permit");
        prop_assert_eq!((claims.nonce, claims.expires_unix_s), (nonce, unix_s + lifetime_s));
    }
}

/// Signs whatever header and payload it is given, with the trusted key: what only a thief of the key or a faulty guard
/// could make, and what the strict reader has to refuse all the same.
fn forged(protected: coset::Header, unprotected: coset::Header, payload: Vec<u8>) -> Vec<u8> {
    let key = ed25519_dalek::SigningKey::from_bytes(&WORLD.seed);
    CoseSign1Builder::new()
        .protected(protected)
        .unprotected(unprotected)
        .payload(payload)
        .create_signature(&[], |bytes| key.sign(bytes).to_bytes().to_vec())
        .build()
        .to_tagged_vec()
        .expect("encodes")
}

fn header() -> HeaderBuilder {
    HeaderBuilder::new().algorithm(iana::Algorithm::EdDSA).key_id(key().id().as_bytes().to_vec())
}

fn payload() -> Vec<u8> {
    coset::CoseSign1::from_tagged_slice(&WORLD.permit).expect("a token").payload.expect("inside")
}

type Map = Vec<(Value, Value)>;

fn map() -> Map {
    Value::from_slice(&payload()).expect("claims").into_map().expect("a map")
}

#[test]
fn headers_that_are_not_ours_are_refused_though_the_signature_fits() {
    let none = coset::Header::default;
    assert_eq!(forged(header().build(), none(), payload()), WORLD.permit, "the forge itself works");
    let kid = || key().id().as_bytes().to_vec();
    let other = |algorithm| HeaderBuilder::new().algorithm(algorithm).key_id(kid()).build();
    let rows = [
        ("ES256", other(iana::Algorithm::ES256), none(), Malformed::Algorithm),
        ("HMAC with the public key", other(iana::Algorithm::HMAC_256_256), none(), Malformed::Algorithm),
        ("no algorithm", HeaderBuilder::new().key_id(kid()).build(), none(), Malformed::Algorithm),
        ("algorithm outside", HeaderBuilder::new().key_id(kid()).build(), header().build(), Malformed::Algorithm),
        (
            "critical",
            header().add_critical(iana::HeaderParameter::ContentType).build(),
            none(),
            Malformed::CriticalHeader,
        ),
        (
            "unknown critical",
            header()
                .add_critical_label(coset::RegisteredLabelWithPrivate::Text("x".to_owned()))
                .value(-70_100, 1.into())
                .build(),
            none(),
            Malformed::CriticalHeader,
        ),
        (
            "critical outside",
            header().build(),
            HeaderBuilder::new().add_critical(iana::HeaderParameter::Alg).build(),
            Malformed::CriticalHeader,
        ),
        ("no key id", HeaderBuilder::new().algorithm(iana::Algorithm::EdDSA).build(), none(), Malformed::KeyId),
        (
            "key id outside",
            HeaderBuilder::new().algorithm(iana::Algorithm::EdDSA).build(),
            HeaderBuilder::new().key_id(kid()).build(),
            Malformed::KeyId,
        ),
        (
            "long key id",
            HeaderBuilder::new().algorithm(iana::Algorithm::EdDSA).key_id(vec![0; 32]).build(),
            none(),
            Malformed::KeyId,
        ),
        ("extra header", header().value(-70_100, 1.into()).build(), none(), Malformed::NotCanonical),
        (
            "content type",
            header().content_format(iana::CoapContentFormat::Cbor).build(),
            none(),
            Malformed::NotCanonical,
        ),
        (
            "extra outside",
            header().build(),
            HeaderBuilder::new().value(-70_100, 1.into()).build(),
            Malformed::NotCanonical,
        ),
    ];
    for (name, protected, unprotected, expected) in rows {
        let token = forged(protected, unprotected, payload());
        assert_eq!(examine(&token), Err(Rejection::Malformed(expected)), "{name}");
    }
    let another = SigningKey::from_seed(&[7; 32]);
    let token = permit::sign(&leave(), &grant(), &another).expect("signs");
    assert_eq!(examine(&token), Err(Rejection::UnknownKey(another.id())));
    let borrowed = HeaderBuilder::new().algorithm(iana::Algorithm::EdDSA).key_id(another.id().as_bytes().to_vec());
    let keys = PublicKeys::new(vec![key().public(), another.public()]).expect("two keys");
    let token = forged(borrowed.build(), none(), payload());
    assert_eq!(Verifier::new(keys).examine(&token, parts(), &expectation()), Err(Rejection::Signature));
}

#[test]
fn claims_that_are_not_ours_are_refused_though_the_signature_fits() {
    let refused = |name: &str, payload: Vec<u8>| {
        let token = forged(header().build(), coset::Header::default(), payload);
        examine(&token).expect_err(name)
    };
    let with = |change: &dyn Fn(&mut Map)| {
        let mut map = map();
        change(&mut map);
        Value::Map(map).to_vec().expect("encodes")
    };
    let set = |label: i64, value: Value| {
        with(&move |map| {
            let entry = map.iter_mut().find(|(name, _)| *name == Value::from(label)).expect("is there");
            entry.1 = value.clone();
        })
    };
    for (label, _) in map() {
        let label: i64 = label.into_integer().expect("an integer").try_into().expect("small");
        let missing = with(&|map| map.retain(|(name, _)| *name != Value::from(label)));
        assert_eq!(refused("missing", missing), Rejection::Malformed(Malformed::Missing(label)));
        let error = refused("another type", set(label, Value::Bool(true)));
        assert!(
            matches!(error, Rejection::Malformed(Malformed::Claim(_) | Malformed::NotClaims(_))),
            "{label}: {error}"
        );
    }
    assert_eq!(refused("version", set(-70_000, 2.into())), Malformed::Version(2).into());
    assert_eq!(refused("short nonce", set(7, Value::Bytes(vec![0; 15]))), Malformed::Claim(7).into());
    assert_eq!(refused("negative time", set(4, (-1).into())), Malformed::Claim(4).into());
    assert_eq!(refused("fractional time", set(4, 1_800_000_030.5.into())), Malformed::Claim(4).into());
    assert_eq!(refused("a newline", set(3, "arm-1\n".into())), Malformed::Claim(3).into());
    assert_eq!(refused("too long", set(3, "a".repeat(129).into())), Malformed::Claim(3).into());
    assert_eq!(refused("endless", set(4, (1_800_000_000_u64 + 601).into())), Rejection::Lifetime);
    assert_eq!(refused("backwards", set(4, 1_799_999_999_u64.into())), Rejection::Lifetime);
    assert_eq!(refused("far deadline", set(-70_009, u64::MAX.into())), Rejection::Lifetime);
    let added = |label: Value| with(&move |map| map.push((label.clone(), 1.into())));
    assert!(matches!(refused("unknown", added((-70_099).into())), Rejection::Malformed(Malformed::UnknownClaim(_))));
    assert!(matches!(refused("unknown text", added("x".into())), Rejection::Malformed(Malformed::UnknownClaim(_))));
    assert!(matches!(refused("not before", added(5.into())), Rejection::Malformed(_)));
    assert!(matches!(
        refused("subject", with(&|map| map.push((2.into(), "s".into())))),
        Rejection::Malformed(Malformed::UnknownClaim(_))
    ));
    assert!(matches!(
        refused("half a release", with(&|map| map.push(((-70_012).into(), "w".into())))),
        Rejection::Malformed(Malformed::Missing(-70_011))
    ));
    let twice = with(&|map| map.push((3.into(), "arm-2".into())));
    assert!(matches!(refused("twice", twice), Rejection::Malformed(Malformed::NotClaims(_))));
    assert_eq!(refused("another order", with(&|map| map.reverse())), Malformed::NotCanonical.into());
    let mut trailing = payload();
    trailing.push(0);
    assert!(matches!(refused("trailing", trailing), Rejection::Malformed(Malformed::NotClaims(_))));
    let mut indefinite = payload();
    assert_eq!(indefinite.remove(0), 0xb0);
    indefinite.insert(0, 0xbf);
    indefinite.push(0xff);
    assert_eq!(refused("indefinite", indefinite), Malformed::NotCanonical.into());
    let mut long = payload();
    assert_eq!(long[1], 0x01);
    long.splice(1..2, [0x18, 0x01]);
    assert_eq!(refused("a longer integer", long), Malformed::NotCanonical.into());
}

#[test]
fn envelopes_written_another_way_are_refused() {
    let refused = |change: fn(&mut Vec<u8>)| {
        let mut token = WORLD.permit.clone();
        change(&mut token);
        examine(&token).expect_err("not canonical")
    };
    assert!(matches!(refused(|token| token.push(0)), Rejection::Malformed(Malformed::NotSign1(_))));
    assert!(matches!(refused(|token| *token = token.split_off(1)), Rejection::Malformed(Malformed::NotSign1(_))));
    assert_eq!(refused(|token| drop(token.splice(0..1, [0xd8, 18]))), Malformed::NotCanonical.into(), "a longer tag");
    assert_eq!(
        refused(|token| {
            token[1] = 0x9f;
            token.push(0xff);
        }),
        Malformed::NotCanonical.into(),
        "an indefinite array"
    );
    let tagged = refused(|token| drop(token.splice(0..0, [0xd8, 61])));
    assert!(matches!(tagged, Rejection::Malformed(Malformed::NotSign1(_))), "{tagged}");
    let mut huge = WORLD.permit.clone();
    huge.resize(PERMIT_BYTES_MAX + 1, 0);
    assert_eq!(examine(&huge), Err(Malformed::TooLarge { bytes: PERMIT_BYTES_MAX + 1 }.into()));
    // Nested as deep as the size allows: no stack overflow.
    assert!(examine(&[0x81; PERMIT_BYTES_MAX]).is_err());
    assert!(examine(&[0xd2; PERMIT_BYTES_MAX]).is_err());
}

#[test]
fn limits_hold_at_their_edge_and_one_past_it() {
    let signed = |grant: Grant| permit::sign(&leave(), &grant, &key());
    for (lifetime, good) in [
        (LIFETIME_MIN, true),
        (LIFETIME_MAX, true),
        (LIFETIME_MIN - Duration::from_nanos(1), false),
        (LIFETIME_MAX + Duration::from_nanos(1), false),
    ] {
        let result = signed(Grant { lifetime, ..grant() });
        assert_eq!(result.is_ok(), good, "{lifetime:?}");
        assert!(good || result == Err(GrantError::Lifetime(lifetime)));
    }
    assert!(signed(Grant { issuer: "i".repeat(128), ..grant() }).is_ok());
    assert!(signed(Grant { issuer: "i".repeat(129), ..grant() }).is_err());
    assert!(signed(Grant { issuer: String::new(), ..grant() }).is_err());
    assert!(signed(Grant { audience: "a".repeat(129), ..grant() }).is_err());
    assert!(signed(Grant { check_id: "c".repeat(65), ..grant() }).is_err());
    assert!(signed(Grant { check_id: "c\u{1b}[31m".to_owned(), ..grant() }).is_err());
    for now in [Moment { unix_s: u64::MAX, ..ISSUED }, Moment { boottime_ns: u64::MAX, ..ISSUED }] {
        assert_eq!(signed(Grant { now, ..grant() }), Err(GrantError::Clock));
    }
    let largest = Grant {
        issuer: "i".repeat(128),
        audience: "a".repeat(128),
        check_id: "c".repeat(64),
        now: Moment { unix_s: u64::from(u32::MAX) * 2, boottime_ns: u64::MAX / 2, ..ISSUED },
        ..grant()
    };
    let release = decision::release(digests(), Reason::InconclusivePlan, "w".repeat(128), "n".repeat(512));
    let token = permit::sign(&release.expect("at its limits"), &largest, &key()).expect("fits");
    println!("largest permit: {} bytes, usual permit: {} bytes", token.len(), WORLD.permit.len());
    assert!(token.len() <= PERMIT_BYTES_MAX);
}

#[test]
fn a_permit_is_good_once_also_after_a_restart_and_in_a_race() {
    let directory = tempfile::tempdir().expect("a directory");
    let accept = |store: &NonceFile| verifier().accept(&WORLD.permit, parts(), &expectation(), store);
    let store = NonceFile::open(directory.path()).expect("opens");
    let accepted = std::thread::scope(|scope| {
        let runs: Vec<_> = (0..8).map(|_| scope.spawn(|| accept(&store).is_ok())).collect();
        runs.into_iter().map(|run| run.join().expect("no panic")).filter(|accepted| *accepted).count()
    });
    assert_eq!(accepted, 1, "exactly one of eight");
    assert!(NonceFile::open(directory.path()).is_err(), "one process at a time");
    drop(store);
    let store = NonceFile::open(directory.path()).expect("opens again");
    assert_eq!(accept(&store).expect_err("used"), Rejection::Nonce(SpendError::Spent));
    assert_eq!(store.len().expect("readable"), 1);
    let mut wrong = expectation();
    wrong.audience = "arm-2";
    let fresh = permit::sign(&leave(), &Grant { nonce: Nonce([9; 16]), ..grant() }, &key()).expect("signs");
    assert!(verifier().accept(&fresh, parts(), &wrong, &store).is_err());
    let accepted = verifier().accept(&fresh, parts(), &expectation(), &store).expect("a refusal spends nothing");
    assert_eq!(accepted.claims().nonce, Nonce([9; 16]));
}

#[test]
fn what_expired_is_forgotten_and_a_clock_stepped_back_revives_nothing() {
    let directory = tempfile::tempdir().expect("a directory");
    let store = NonceFile::open(directory.path()).expect("opens");
    for number in 0..20 {
        store.spend(Nonce([number; 16]), 1_000 + u64::from(number), 1_000).expect("fresh");
    }
    store.spend(Nonce([100; 16]), 2_000, 1_012).expect("fresh");
    assert_eq!(store.len().expect("readable"), 20 + 1 - 8, "those up to 1007 are past, with leeway");
    assert_eq!(store.spend(Nonce([3; 16]), 1_003, 1_000), Err(SpendError::Forgotten { forgotten_until_unix_s: 1_007 }));
    assert_eq!(store.spend(Nonce([8; 16]), 1_008, 1_000), Err(SpendError::Spent));
    drop(store);
    let store = NonceFile::open(directory.path()).expect("opens again");
    assert!(matches!(store.spend(Nonce([3; 16]), 1_003, 1_000), Err(SpendError::Forgotten { .. })), "survives");
}

const CHILD: &str = "STEADFAST_NONCE_CHILD";

/// Spends nonces until killed, saying which are spent; does nothing unless the next test starts it.
#[test]
fn child_spends_until_killed() {
    let Some(directory) = std::env::var_os(CHILD) else { return };
    let store = NonceFile::open(Path::new(&directory)).expect("opens");
    let mut out = std::io::stdout().lock();
    for number in store.len().expect("readable").. {
        let nonce = Nonce(u128::from(number).to_be_bytes());
        match store.spend(nonce, u64::MAX / 2, 0) {
            Ok(()) => writeln!(out, "spent {number}").and_then(|()| out.flush()).expect("the parent listens"),
            Err(SpendError::Spent) => {}
            Err(error) => panic!("{error}"),
        }
    }
}

#[test]
fn a_spent_nonce_survives_kill_minus_nine() {
    let directory = tempfile::tempdir().expect("a directory");
    let mut told = vec![];
    for round in 0_usize..8 {
        let mut child = Command::new(std::env::current_exe().expect("this binary"))
            .args(["--exact", "child_spends_until_killed", "--nocapture"])
            .env(CHILD, directory.path())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .expect("starts");
        let lines = BufReader::new(child.stdout.take().expect("piped")).lines();
        let wanted = 1 + round * 3;
        for line in lines {
            let Ok(line) = line else { break };
            let Some(number) = line.rsplit_once("spent ").and_then(|(_, number)| number.parse::<u64>().ok()) else {
                continue;
            };
            told.push(number);
            if told.len() % 40 >= wanted {
                child.kill().expect("killed");
            }
        }
        child.wait().expect("ends");
        let store = NonceFile::open(directory.path()).expect("opens after a kill");
        for number in &told {
            let nonce = Nonce(u128::from(*number).to_be_bytes());
            assert_eq!(store.spend(nonce, u64::MAX / 2, 0), Err(SpendError::Spent), "round {round}");
        }
    }
    assert!(told.len() >= 8, "{told:?}");
}

fn seed(byte: u8) -> impl FnOnce() -> Result<Zeroizing<[u8; 32]>, KeyError> {
    move || Ok(Zeroizing::new([byte; 32]))
}

fn never() -> Result<Zeroizing<[u8; 32]>, KeyError> {
    panic!("a key was made where one exists")
}

fn mode(path: &Path) -> u32 {
    path.metadata().expect("exists").permissions().mode() & 0o777
}

fn set_mode(path: &Path, mode: u32) {
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).expect("allowed");
}

#[test]
fn keys_are_made_once_and_private() {
    let parent = tempfile::tempdir().expect("a directory");
    let directory = parent.path().join("keys");
    let made = Keys::open_or_create(&directory, OVERLAP_DEFAULT, 100, system_random).expect("made");
    assert_eq!((mode(&directory), mode(&directory.join("signing.key"))), (0o700, 0o600));
    let opened = Keys::open_or_create(&directory, OVERLAP_DEFAULT, 200, never).expect("opened");
    assert_eq!(opened.signing().id(), made.signing().id());
    let read = PublicKeys::read(&directory.join("public.json")).expect("a JWK set");
    assert_eq!(read, *opened.public());
    assert_eq!(PublicKeys::read_archive(&directory.join("archive.json")).expect("a JWK set"), read);
    assert!(
        !format!("{made:?}").contains(&hex::encode(std::fs::read(directory.join("signing.key")).expect("readable")))
    );
    assert_eq!(std::fs::read_dir(&directory).expect("readable").count(), 3, "nothing left over");
}

#[test]
fn keys_that_others_could_touch_are_refused() {
    let parent = tempfile::tempdir().expect("a directory");
    let fresh = |name: &str| {
        let directory = parent.path().join(name);
        drop(Keys::open_or_create(&directory, OVERLAP_DEFAULT, 100, seed(1)).expect("made"));
        directory
    };
    let open =
        |directory: &Path| Keys::open_or_create(directory, OVERLAP_DEFAULT, 100, never).expect_err("must be refused");
    for loose in [0o701, 0o710, 0o720, 0o755] {
        let directory = fresh(&format!("directory-{loose:o}"));
        set_mode(&directory, loose);
        assert!(matches!(open(&directory), KeyError::Loose { .. }), "{loose:o}");
    }
    for loose in [0o604, 0o640, 0o660, 0o700] {
        let directory = fresh(&format!("file-{loose:o}"));
        set_mode(&directory.join("signing.key"), loose);
        assert!(matches!(open(&directory), KeyError::Loose { .. }), "{loose:o}");
    }
    let directory = fresh("public");
    set_mode(&directory.join("public.json"), 0o664);
    assert!(matches!(open(&directory), KeyError::Loose { .. }));
    let directory = fresh("link");
    std::fs::rename(directory.join("signing.key"), parent.path().join("elsewhere")).expect("moved");
    symlink(parent.path().join("elsewhere"), directory.join("signing.key")).expect("linked");
    assert!(matches!(open(&directory), KeyError::File { .. }));
    symlink(fresh("target"), parent.path().join("linked")).expect("linked");
    assert!(matches!(open(&parent.path().join("linked")), KeyError::File { .. }));
    for (name, bytes) in [("short", &[1_u8; 31][..]), ("long", &[1; 33]), ("empty", &[])] {
        let directory = fresh(name);
        std::fs::write(directory.join("signing.key"), bytes).expect("written");
        assert!(matches!(open(&directory), KeyError::NotASigningKey(_)), "{name}");
    }
    let directory = fresh("lost");
    std::fs::remove_file(directory.join("signing.key")).expect("removed");
    assert!(matches!(open(&directory), KeyError::SigningKeyMissing(_)));
    let directory = fresh("foreign");
    match std::os::unix::fs::chown(directory.join("signing.key"), Some(65_534), None) {
        Ok(()) => assert!(matches!(open(&directory), KeyError::ForeignOwner { uid: 65_534, .. })),
        Err(error) => println!("skipped: a foreign owner needs root ({error})"),
    }
}

/// Signs a permit of the longest life with this key, at this second.
fn sign_at(key: &SigningKey, unix_s: u64) -> Vec<u8> {
    let now = Moment { unix_s, ..ISSUED };
    permit::sign(&leave(), &Grant { now, lifetime: LIFETIME_MAX, ..grant() }, key).expect("signs")
}

fn check_at(keys: &PublicKeys, token: &[u8], unix_s: u64) -> Result<(), Rejection> {
    let clock = Clock::SameMachine(Moment { unix_s, ..ISSUED });
    Verifier::new(keys.clone()).examine(token, parts(), &Expectation { clock, ..expectation() }).map(|_| ())
}

#[test]
fn after_a_rotation_the_old_key_counts_for_what_it_signed_before() {
    let parent = tempfile::tempdir().expect("a directory");
    let directory = parent.path().join("keys");
    let start = ISSUED.unix_s;
    let keys = Keys::open_or_create(&directory, OVERLAP_DEFAULT, start, seed(1)).expect("made");
    let old = keys.signing();
    let before = sign_at(&old, start + 5);
    let rotation = keys.rotate(|| start + 5, seed(2)).expect("rotated");
    assert_eq!((rotation.retired.id(), rotation.key.id()), (old.id(), keys.signing().id()));
    assert!(rotation.undated.is_none() && old.id() != keys.signing().id());
    assert_eq!(check_at(&keys.public(), &before, start + 10), Ok(()), "signed before the rotation");
    assert_eq!(check_at(&keys.public(), &sign_at(&keys.signing(), start + 6), start + 10), Ok(()), "the new key's");
    let thief = sign_at(&old, start + 6);
    assert_eq!(check_at(&keys.public(), &thief, start + 10), Err(Rejection::RetiredKey(old.id())));

    let last = start + 5 + OVERLAP_DEFAULT.as_secs();
    let open = |unix_s| Keys::open_or_create(&directory, OVERLAP_DEFAULT, unix_s, never).expect("opened");
    assert_eq!(open(last).public(), keys.public());
    let reopened = open(last + 1);
    assert!(reopened.public().find(old.id()).is_none(), "its last permit has expired");
    assert_eq!(PublicKeys::read(&directory.join("public.json")).expect("written"), *reopened.public());
    let kept = reopened.archive().find(old.id()).expect("the log may need it").retirement().expect("dated");
    assert_eq!((kept.retired_unix_s, kept.permits_until_unix_s), (start + 5, last));
}

#[test]
fn a_permit_of_a_retired_key_is_good_at_the_edge_of_the_overlap_and_not_a_second_past_it() {
    let start = ISSUED.unix_s;
    for overlap_s in [0, 1, 60] {
        let parent = tempfile::tempdir().expect("a directory");
        let overlap = Duration::from_secs(overlap_s);
        let keys = Keys::open_or_create(&parent.path().join("keys"), overlap, start, seed(1)).expect("made");
        let (old, before) = (keys.signing().id(), sign_at(&keys.signing(), start));
        keys.rotate(|| start, seed(2)).expect("rotated");
        let published = keys.public();
        assert_eq!(check_at(&published, &before, start + overlap_s), Ok(()), "{overlap_s} s");
        let past = check_at(&published, &before, start + overlap_s + 1);
        assert_eq!(past, Err(Rejection::OverlapEnded { key: old, ago_s: 1 }), "{overlap_s} s");
        assert_eq!(keys.withdraw(start + overlap_s).expect("works"), Some(start + overlap_s));
        assert_eq!(check_at(&keys.public(), &before, start + overlap_s), Ok(()), "{overlap_s} s");
        assert_eq!(keys.withdraw(start + overlap_s + 1).expect("works"), None);
        let past = check_at(&keys.public(), &before, start + overlap_s + 1);
        assert_eq!(past, Err(Rejection::UnknownKey(old)), "{overlap_s} s");
    }
}

/// Every state of the disk that a rotation passes through: each file is replaced whole, in this order.
#[test]
fn a_rotation_cut_short_leaves_the_old_key_or_the_new_in_use() {
    let parent = tempfile::tempdir().expect("a directory");
    let directory = parent.path().join("keys");
    let keys = Keys::open_or_create(&directory, OVERLAP_DEFAULT, 100, seed(1)).expect("made");
    keys.rotate(|| 150, seed(2)).expect("rotated");
    let state = || ["archive.json", "public.json", "signing.key"].map(|name| std::fs::read(directory.join(name)).ok());
    let before = state();
    let undated = std::sync::Mutex::new(None);
    let asked = std::sync::atomic::AtomicU8::new(0);
    let clock = || {
        // Asked a second time between the change of keys and the old one's date.
        if asked.fetch_add(1, std::sync::atomic::Ordering::Relaxed) == 1 {
            *undated.lock().expect("a state") = Some(state());
        }
        200
    };
    keys.rotate(clock, seed(3)).expect("rotated");
    let undated = undated.into_inner().expect("a state").expect("asked twice");
    let after = state();
    let of = |at: [usize; 3]| at.map(|at| [&before, &undated, &after][at]);
    let states = [[0, 0, 0], [1, 0, 0], [1, 1, 0], [1, 1, 1], [2, 1, 1], [2, 2, 2]].map(of);
    for (step, files) in states.into_iter().enumerate() {
        for half in ["archive.json", "public.json", "signing.key"] {
            let cut = tempfile::tempdir().expect("a directory");
            set_mode(cut.path(), 0o700);
            for (at, name) in ["archive.json", "public.json", "signing.key"].into_iter().enumerate() {
                std::fs::write(cut.path().join(name), files[at][at].as_ref().expect("there")).expect("written");
                set_mode(&cut.path().join(name), if name == "signing.key" { 0o600 } else { 0o644 });
            }
            std::fs::write(cut.path().join(format!(".{half}.new")), b"half").expect("written");
            let keys = Keys::open_or_create(cut.path(), OVERLAP_DEFAULT, 300, never).expect("opened");
            let expected = SigningKey::from_seed(&[if step < 3 { 2 } else { 3 }; 32]).id();
            assert_eq!(keys.signing().id(), expected, "step {step}");
            for list in [keys.public(), keys.archive()] {
                assert_eq!(list.find(expected).expect("listed").retirement(), None, "step {step}");
                let in_use = list.iter().filter(|key| key.retirement().is_none()).count();
                assert_eq!(in_use, 1, "step {step}");
            }
            for signed in [1, 2] {
                let signed = SigningKey::from_seed(&[signed; 32]).id();
                assert!(keys.archive().find(signed).is_some(), "step {step}: a checkpoint may be {signed}'s");
            }
            keys.rotate(|| 400, seed(4)).expect("what was half written is no obstacle");
            assert_eq!(keys.signing().id(), SigningKey::from_seed(&[4; 32]).id());
        }
    }
}

/// Rotates without end, saying each new key's id once it signs.
#[test]
#[ignore = "run by the next test, which kills it"]
fn rotates_until_killed() {
    let directory = std::env::var_os("KEYS_TO_ROTATE").expect("told where");
    let keys = Keys::open_or_create(Path::new(&directory), Duration::ZERO, 100, system_random).expect("opened");
    for now in 101.. {
        println!("signs {}", keys.signing().id());
        keys.rotate(|| now, system_random).expect("rotated");
    }
}

#[test]
fn whenever_a_rotation_is_killed_a_key_is_there_and_none_that_signed_is_forgotten() {
    let parent = tempfile::tempdir().expect("a directory");
    let directory = parent.path().join("keys");
    let mut signed = std::collections::BTreeSet::new();
    for round in 0..20 {
        let mut child = Command::new(std::env::current_exe().expect("this test"))
            .args(["--exact", "rotates_until_killed", "--ignored", "--nocapture"])
            .env("KEYS_TO_ROTATE", &directory)
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .expect("it runs");
        let wanted = signed.len() + 1 + round % 7;
        let mut said = BufReader::new(child.stdout.take().expect("its output")).lines();
        while let Some(Ok(line)) = said.next() {
            if let Some(id) = line.split("signs ").nth(1) {
                signed.insert(id.to_owned());
            }
            if signed.len() >= wanted {
                child.kill().expect("killed");
            }
        }
        child.wait().expect("ends");
        let keys = Keys::open_or_create(&directory, Duration::ZERO, 1_000_000, never).expect("opens after a kill");
        let archive = keys.archive();
        assert_eq!(archive.iter().filter(|key| key.retirement().is_none()).count(), 1, "round {round}");
        let known: std::collections::BTreeSet<String> = archive.iter().map(|key| key.id().to_string()).collect();
        assert!(signed.is_subset(&known), "round {round}: a key that signed is forgotten");
        let in_use = keys.public().find(keys.signing().id()).expect("published").retirement();
        assert_eq!(in_use, None, "round {round}");
    }
    assert!(signed.len() >= 20, "{}", signed.len());
}

#[test]
fn a_failed_rotation_changes_nothing_that_counts() {
    let parent = tempfile::tempdir().expect("a directory");
    let directory = parent.path().join("keys");
    let keys = Keys::open_or_create(&directory, OVERLAP_DEFAULT, 100, seed(1)).expect("made");
    let failed = keys.rotate(|| 200, || Err(KeyError::Randomness(std::io::ErrorKind::Other.into())));
    assert!(matches!(failed, Err(KeyError::Randomness(_))));
    // A folder where the second file should go cannot be written over.
    for name in [".archive.json.new", ".public.json.new", ".signing.key.new"] {
        std::fs::create_dir(directory.join(name)).expect("made");
        assert!(matches!(keys.rotate(|| 200, seed(2)), Err(KeyError::File { .. })), "{name}");
        std::fs::remove_dir(directory.join(name)).expect("removed");
        assert_eq!(keys.signing().id(), SigningKey::from_seed(&[1; 32]).id(), "{name}");
        assert_eq!(check_at(&keys.public(), &sign_at(&keys.signing(), ISSUED.unix_s), ISSUED.unix_s), Ok(()), "{name}");
        let reopened = Keys::open_or_create(&directory, OVERLAP_DEFAULT, 300, never).expect("opened");
        assert_eq!(reopened.signing().id(), keys.signing().id(), "{name}");
    }
    assert!(keys.rotate(|| 200, seed(3)).expect("rotated").undated.is_none());
}

#[test]
fn too_many_rotations_are_refused_and_change_nothing() {
    let parent = tempfile::tempdir().expect("a directory");
    let keys = Keys::open_or_create(&parent.path().join("keys"), OVERLAP_DEFAULT, 100, seed(1)).expect("made");
    for number in 2..=KEYS_MAX {
        keys.rotate(|| 100, seed(u8::try_from(number).expect("small"))).expect("rotated");
    }
    let before = keys.signing().id();
    assert!(matches!(keys.rotate(|| 100, seed(99)), Err(KeyError::TooManyKeys { keys_max: KEYS_MAX })));
    assert_eq!(keys.signing().id(), before);
    keys.rotate(|| 101 + OVERLAP_DEFAULT.as_secs(), seed(99)).expect("the old ones are gone by now");
    assert_eq!((keys.public().iter().count(), keys.archive().iter().count()), (2, KEYS_MAX + 1));
}

#[test]
fn a_wall_clock_that_was_set_back_keeps_no_guard_from_starting() {
    let parent = tempfile::tempdir().expect("a directory");
    let directory = parent.path().join("keys");
    let keys = Keys::open_or_create(&directory, OVERLAP_DEFAULT, 100_000, seed(1)).expect("made");
    for number in 2..=20_u8 {
        keys.rotate(|| 100_000 + u64::from(number) * 1_000, seed(number)).expect("rotated");
    }
    let reopened = Keys::open_or_create(&directory, OVERLAP_DEFAULT, 50, never).expect("opened");
    assert_eq!(reopened.public().iter().count(), KEYS_MAX, "those retired last");
    assert_eq!(reopened.public().iter().next().map(|key| key.id()), Some(keys.signing().id()));
    assert_eq!(reopened.archive().iter().count(), 20);
    reopened.rotate(|| 50, seed(21)).expect("rotated");
    assert_eq!(reopened.archive().iter().count(), 21);
}

#[test]
fn the_archive_holds_its_limit_and_refuses_one_past_it() {
    let parent = tempfile::tempdir().expect("a directory");
    let directory = parent.path().join("keys");
    drop(Keys::open_or_create(&directory, Duration::ZERO, 100, seed(1)).expect("made"));
    let path = directory.join("archive.json");
    let jwk = |number: usize| {
        let mut seed = [0xa5; 32];
        seed[..8].copy_from_slice(&number.to_be_bytes());
        let key = PublicKeys::new(vec![SigningKey::from_seed(&seed).public()]).expect("one key");
        let text = key.to_jwk_set().expect("writes");
        let mut set: serde_json::Value = serde_json::from_str(&text).expect("JSON");
        let mut jwk = set["keys"][0].take();
        (jwk["retired_unix_s"], jwk["permits_until_unix_s"]) = (1.into(), 1.into());
        jwk
    };
    let mut set: serde_json::Value =
        serde_json::from_str(&std::fs::read_to_string(&path).expect("readable")).expect("JSON");
    let keys = set["keys"].as_array_mut().expect("a list");
    keys.extend((1..ARCHIVE_KEYS_MAX - 1).map(jwk));
    std::fs::write(&path, serde_json::to_string_pretty(&set).expect("JSON")).expect("written");
    let keys = Keys::open_or_create(&directory, Duration::ZERO, 200, never).expect("opened");
    keys.rotate(|| 200, seed(2)).expect("there is room for one more");
    assert_eq!(keys.archive().iter().count(), ARCHIVE_KEYS_MAX);
    let full = keys.rotate(|| 300, seed(3));
    assert!(matches!(full, Err(KeyError::TooManyKeys { keys_max: ARCHIVE_KEYS_MAX })), "{full:?}");
    let keys = Keys::open_or_create(&directory, Duration::ZERO, 300, never).expect("and is read back");
    assert_eq!(keys.signing().id(), SigningKey::from_seed(&[2; 32]).id());
}

#[test]
fn sets_of_public_keys_are_read_strictly() {
    let keys = PublicKeys::new(vec![key().public()]).expect("one key");
    let text = keys.to_jwk_set().expect("writes");
    assert_eq!(PublicKeys::from_jwk_set(&text).expect("reads"), keys);
    let refused = |from: &str, to: &str| {
        assert!(text.contains(from), "{from}");
        assert!(PublicKeys::from_jwk_set(&text.replace(from, to)).is_err(), "{from} → {to}");
    };
    refused("Ed25519", "X25519");
    refused("\"EdDSA\"", "\"none\"");
    refused("\"sig\"", "\"enc\"");
    refused(&WORLD.kid, "0000000000000000");
    refused("\"kty\"", "\"d\": \"secret\", \"kty\"");
    refused("\"kty\"", "\"permits_until_unix_s\": 5, \"kty\"");
    refused("\"kty\"", "\"retired_unix_s\": 6, \"permits_until_unix_s\": 5, \"kty\"");
    assert!(PublicKeys::from_jwk_set("{\"keys\":[]}").is_err());
    assert!(PublicKeys::new(vec![key().public(), key().public()]).is_err(), "twice");
    // A point of small order fits signatures nobody made.
    let weak = "{\"keys\":[{\"kty\":\"OKP\",\"crv\":\"Ed25519\",\"alg\":\"EdDSA\",\"use\":\"sig\",\"kid\":\"0\",\"x\":\"AQAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA\"}]}";
    assert!(PublicKeys::from_jwk_set(weak).expect_err("weak").to_string().contains("small order"));
}

#[test]
fn a_statement_is_no_permit_and_a_permit_no_statement() {
    let signature = key().sign_statement("log checkpoint", b"head");
    let public = key().public();
    assert!(public.verify_statement("log checkpoint", b"head", &signature).is_ok());
    assert!(public.verify_statement("log checkpoint", b"heaD", &signature).is_err());
    assert!(public.verify_statement("other", b"head", &signature).is_err());
}

#[test]
fn the_systems_clocks_can_be_read() {
    let (first, second) = (Moment::now().expect("clocks"), Moment::now().expect("clocks"));
    assert_eq!(first.boot_id, second.boot_id);
    assert!(first.boottime_ns < second.boottime_ns && first.unix_s > 1_700_000_000);
    assert_ne!(Nonce::random().expect("randomness"), Nonce::random().expect("randomness"));
}
