//! What must hold of whatever reads bytes from outside, one function a reader. The fuzz targets feed them what a fuzzer
//! makes up, `tests/corpora.rs` what is committed under `fuzz/corpus`; a property that fails panics.

use std::path::Path;
use std::sync::LazyLock;

use steadfast::audit::frame::{GENESIS, Header};
use steadfast::audit::record::{Event, RECORD_BYTES_MAX, Record, Retired, SegmentOpened, Stamp};
use steadfast::audit::{read, segment, verify};
use steadfast::calibration::Calibration;
use steadfast::config::fragment::Fragment;
use steadfast::config::settings::Settings;
use steadfast::constitution::limits::{BROKEN_LIMITS_MAX, EXCERPT_CHARS_MAX, broken_limits};
use steadfast::constitution::{Constitution, PROBLEMS_MAX, RULE_TEXT_BYTES_MAX, RULES_MAX, lint};
use steadfast::decision::Reason;
use steadfast::intake::limits::Limits;
use steadfast::intake::options::{OPTION_TEXT_BYTES_MAX, OptionsError, Pairs};
use steadfast::margin::Margin;
use steadfast::offline::verdict_text;
use steadfast::permit::claims::NAME_BYTES_MAX;
use steadfast::permit::keys::{KEYS_MAX, PublicKeys, SigningKey};
use steadfast::permit::verify::{Clock, Expectation, Parts, Verifier};
use steadfast::permit::{BootId, Claims, Moment};
use steadfast::plan::{self, Ground, Plan, STEPS_MAX, Stance};
use steadfast::scene::decode::{self, IMAGE_PIXELS_MAX, IMAGE_SIDE_PX_MAX, ImageError};
use steadfast::statistics::Label;
use steadfast::triple::{Digest, Digests};
use zbus::zvariant::serialized::{Context, Data};
use zbus::zvariant::{BE, LE};

/// What must hold of one reader, whatever the bytes.
pub type Property = fn(&[u8]);

/// Every target by the name of its binary and of its folder of seeds.
pub const TARGETS: [(&str, Property); 9] = [
    ("image", image),
    ("plan", plan),
    ("verdict", verdict),
    ("config", config),
    ("constitution", constitution),
    ("calibration", calibration),
    ("audit", audit),
    ("permit", permit),
    ("options", options),
];

/// A picture is decoded within the limits, or refused by name; what is decoded is the whole file and nothing but it.
/// A PNG is tried once more with its checksums put right, which no fuzzer guesses.
pub fn image(bytes: &[u8]) {
    picture(bytes);
    if let Some(repaired) = with_checksums(bytes) {
        picture(&repaired);
    }
}

fn picture(bytes: &[u8]) {
    let decoded = match decode::decode(bytes) {
        Ok(decoded) => decoded,
        Err(error) => return assert_ne!(error, ImageError::Panicked),
    };
    let (width, height) = decoded.image.dimensions();
    assert!((1..=IMAGE_SIDE_PX_MAX).contains(&width) && (1..=IMAGE_SIDE_PX_MAX).contains(&height));
    assert!(u64::from(width) * u64::from(height) <= IMAGE_PIXELS_MAX);
    let facts = decoded.facts;
    let turned = facts.orientation >= 5;
    let stored = (facts.stored_width, facts.stored_height);
    assert_eq!((width, height), if turned { (stored.1, stored.0) } else { stored });
    // Zero bytes behind the end are padding; the last byte that is not one belongs to the picture.
    let end = bytes.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1);
    assert!(decode::decode(&bytes[..end.saturating_sub(1)]).is_err(), "cut by a byte and still a picture");
    assert!(decode::decode(&[bytes, &[1]].concat()).is_err(), "something behind the end");
}

/// A PNG with every chunk's checksum put right; `None` where nothing is a PNG or nothing had to be changed.
fn with_checksums(bytes: &[u8]) -> Option<Vec<u8>> {
    let mut repaired = bytes.to_vec();
    let mut at = 8;
    bytes.starts_with(b"\x89PNG\r\n\x1a\n").then_some(())?;
    while let Some(length) = repaired.get(at..at + 4).and_then(|length| length.try_into().ok()) {
        let end = (at + 8).checked_add(usize::try_from(u32::from_be_bytes(length)).ok()?)?;
        let Some(checked) = repaired.get(at + 4..end) else { break };
        let crc = !checked.iter().fold(u32::MAX, |crc, byte| {
            (0..8).fold(crc ^ u32::from(*byte), |crc, _| (crc >> 1) ^ (0xEDB8_8320 & (crc & 1).wrapping_neg()))
        });
        repaired.get_mut(end..end + 4)?.copy_from_slice(&crc.to_be_bytes());
        at = end + 4;
    }
    (repaired != bytes).then_some(repaired)
}

/// A plan that cannot be read is inconclusive; no refusal outweighs a step that acts; a limit broken is told in bounds.
/// The input is an instruction, a NUL, and a plan; or a plan alone.
pub fn plan(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    let (instruction, plan) = text.split_once('\0').unwrap_or(("Clean the room.", text));
    let judged = plan::judge(instruction, plan);
    match Plan::parse(plan) {
        Ok(parsed) => {
            assert!(parsed.steps.len() <= STEPS_MAX);
            assert_eq!(plan::stance(instruction, &parsed), judged);
            let steps: Vec<&str> = parsed.steps.iter().map(|step| step.text.as_str()).collect();
            let broken = broken_limits(&SHIPPED, instruction, &steps);
            assert!(broken.len() <= BROKEN_LIMITS_MAX);
            for limit in broken {
                assert!(SHIPPED.rule(limit.number).is_some() && limit.excerpt.chars().count() <= EXCERPT_CHARS_MAX);
            }
        }
        Err(error) => {
            assert_eq!((judged.stance, judged.ground), (Stance::Inconclusive, Ground::Fault(error)));
        }
    }
    let acts = format!("{plan}\n\n1. Throw the knife at the child.\n");
    // Thinking that was begun and not ended swallows the step: no executor that reads thinking as such runs it.
    if Plan::parse(&acts).is_ok_and(|parsed| !parsed.thinking_removed) {
        assert_ne!(plan::judge(instruction, &acts).stance, Stance::Refused, "a step that acts is taken for a refusal");
    }
}

/// A verdict of a model is never read as *safe* where its last word is that the plan is unsafe.
pub fn verdict(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    let strict = verdict_text::strict(text).label();
    // As a person sees it: without characters that have no picture.
    let said = plan::without_thinking(text).to_lowercase();
    assert!(strict != Some(Label::Safe) || said.contains("saf"), "safe without being said");
    let last_word = format!("{text}\n\n[Safety: Unsafe]");
    // Thinking that was begun and not ended swallows the last word: what was said before it stands.
    if plan::without_thinking(&last_word).ends_with("[Safety: Unsafe]") {
        assert_ne!(verdict_text::strict(&last_word).label(), Some(Label::Safe));
    }
    assert_eq!(verdict_text::compatible(&last_word), Some(Label::Unsafe));
}

/// A configuration that stands has every value in its range, and a later fragment wins.
pub fn config(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    let Ok(fragment) = Fragment::parse(Path::new("steadfast.toml"), text) else { return };
    let quiet = Fragment::parse(Path::new("quiet.toml"), "mode = \"shadow\"\n").expect("a sound fragment");
    let Ok(settings) = Settings::from_fragment(fragment.clone()) else { return };
    assert!((1..=64).contains(&settings.threads) && !settings.providers.is_empty());
    assert!((1..=1024).contains(&settings.queue_checks_max));
    assert!((1..=settings.queue_checks_max).contains(&settings.client_checks_max));
    assert!(!settings.deadline_default.is_zero() && settings.deadline_default <= settings.deadline_max);
    assert!(!settings.image_age_max.is_zero() && !settings.permit_lifetime.is_zero());
    assert!(!settings.audit_redact || settings.evidence_bytes_max == 0);
    let later = Settings::from_fragment(fragment.with(quiet)).expect("one sound fragment over another");
    assert_eq!(later, Settings { mode: steadfast::config::fragment::Mode::Shadow, ..settings });
}

/// A constitution that stands is numbered without a gap in whatever order, says nothing a chat template reads as more
/// than text, and has a digest that layout leaves alone; one that does not stand names its problems, boundedly many.
pub fn constitution(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    let constitution = match Constitution::parse(text) {
        Ok(constitution) => constitution,
        Err(errors) => return assert!((1..=PROBLEMS_MAX + 1).contains(&errors.as_slice().len())),
    };
    let rules = constitution.rules();
    assert!((1..=usize::from(RULES_MAX)).contains(&rules.len()));
    let mut numbers: Vec<usize> = rules.iter().map(|rule| usize::from(rule.number)).collect();
    numbers.sort_unstable();
    assert!(numbers.into_iter().eq(1..=rules.len()));
    for rule in rules {
        assert!((1..=RULE_TEXT_BYTES_MAX).contains(&rule.text.len()));
    }
    let prompt = constitution.prompt_text();
    assert_eq!(prompt.lines().count(), rules.len() + 1, "a rule broke out of its line");
    assert!(!prompt.contains(['<', '>', '\r', '\0']) && !prompt.contains("[INST]"));
    let commented = Constitution::parse(&format!("{text}\n# A comment.\n")).expect("layout changes nothing");
    assert_eq!(commented.digest(), constitution.digest());
    let _ = lint::lint(&constitution);
}

/// A calibration that stands gives a finite number for an ordinary margin, and reads back as it was written.
pub fn calibration(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    let Ok(calibration) = Calibration::parse(text) else { return };
    let zero = Margin::new(0.0).expect("finite");
    assert!(calibration.margin.refuse_log_odds(zero).is_ok_and(f64::is_finite));
    let huge = Margin::new(f64::MAX).expect("finite");
    assert!(calibration.margin.refuse_log_odds(huge).is_ok() || calibration.refuses(huge));
    let written = calibration.to_toml().expect("written");
    assert_eq!(Calibration::parse(&written).expect("what was written reads back"), calibration);
}

/// A log is read and verified whatever lies in its folder, and a byte that changed is seen.
///
/// The first byte says how the rest is laid out. `r`: the bytes of one segment. Anything else is a log well sealed: two
/// bytes say where a third one damages it, and the rest is a payload a line, where `@N` begins segment N.
pub fn audit(bytes: &[u8]) {
    let Some((layout, rest)) = bytes.split_first() else { return };
    let folder = tempfile::tempdir_in(&*SCRATCH).expect("a folder");
    let place = |number: u64| segment::path_of(folder.path(), number);
    if *layout == b'r' {
        std::fs::write(place(1), rest).expect("written");
        look(folder.path());
        return;
    }
    let Some(([high, low, change], payloads)) = rest.split_first_chunk::<3>() else { return };
    let segments = sealed(payloads);
    for (number, bytes) in &segments {
        std::fs::write(place(*number), bytes).expect("written");
    }
    let (report, records) = look(folder.path());
    let Some((number, sound)) = segments.last().filter(|(_, bytes)| !bytes.is_empty()) else { return };
    // Segments that retention has given up on paper are read and not verified.
    if report.is_whole() && report.records == records && *change != 0 {
        let mut damaged = sound.clone();
        let at = usize::from(u16::from_be_bytes([*high, *low])) % damaged.len();
        damaged[at] ^= *change;
        std::fs::write(place(*number), damaged).expect("written");
        assert!(!look(folder.path()).0.is_whole(), "a changed byte goes unseen");
    }
}

/// Everything that reads a log from outside; with the report, the records read.
fn look(folder: &Path) -> (verify::Report, u64) {
    let mut records = 0;
    for entry in read::entries(folder).expect("a readable folder") {
        records += u64::from(entry.is_ok());
    }
    let filter = read::Filter { reason: Some(Reason::Constitution), ..read::Filter::default() };
    for entry in read::list(folder, filter.clone()).expect("a readable folder").flatten() {
        assert!(entry.record().is_some_and(|record| filter.takes(record)));
    }
    assert!(read::show(folder, "0").expect("a readable folder").len() <= read::CHECKS_MAX);
    let report = verify::verify(folder, &[]).expect("a readable folder");
    assert!(!report.is_whole() || report.records <= records, "{report:?} and {records} records");
    (report, records)
}

/// Payloads in frames that follow each other, in segments; the first is opened as it has to be.
fn sealed(payloads: &[u8]) -> Vec<(u64, Vec<u8>)> {
    let stamp = Stamp { wall_ns: 1, boot_ns: 1, boot_id: "0f".repeat(16) };
    let opened = SegmentOpened { segment: 1, sealed: None, undecided: vec![], retired: Retired::default() };
    let opening = Record::new(stamp, Event::SegmentOpened(Box::new(opened))).encode().expect("a record");
    let mut segments = vec![(1, Vec::new())];
    let (mut before, mut sequence) = (GENESIS, 0);
    for payload in std::iter::once(opening.as_slice()).chain(payloads.split(|byte| *byte == b'\n').take(64)) {
        let number = payload.strip_prefix(b"@").and_then(|digits| std::str::from_utf8(digits).ok()?.parse().ok());
        if let Some(number) = number.filter(|number| segments.iter().all(|(other, _)| other < number)) {
            segments.push((number, Vec::new()));
            continue;
        }
        let Some((_, bytes)) = segments.last_mut() else { return segments };
        let Some(length) = u32::try_from(payload.len()).ok().filter(|_| payload.len() <= RECORD_BYTES_MAX) else {
            continue;
        };
        sequence += 1;
        let header = Header::seal(length, sequence, 0, before, Digest::of(payload));
        before = header.hash;
        bytes.extend_from_slice(&header.to_bytes());
        bytes.extend_from_slice(payload);
    }
    segments
}

/// No token but the ones the key signed is good for these parts, no parts but the ones it names, and what a stolen key
/// could sign is still held to what is here.
///
/// The first byte chooses: `s` signs the rest as claims, `p` takes the rest for the parts, `k` for public keys, and
/// anything else for a token.
pub fn permit(bytes: &[u8]) {
    let Some((kind, rest)) = bytes.split_first() else { return };
    match kind {
        b's' => {
            let Ok(claims) = WORLD.examine(&WORLD.signed(rest), WORLD.parts()) else { return };
            assert_eq!(claims.digests, Digests::of(&WORLD.instruction, &WORLD.image, &WORLD.plan));
            assert_eq!((claims.issuer.as_str(), claims.audience.as_str()), (ISSUER, AUDIENCE));
            assert!(claims.expires_unix_s > NOW.unix_s && claims.deadline_boottime_ns > NOW.boottime_ns);
            assert_eq!(claims.boot_id, NOW.boot_id);
        }
        b'p' => {
            let mut parts = rest.splitn(3, |byte| *byte == b'|');
            let mut part = || parts.next().unwrap_or_default();
            let parts = Parts { instruction: part(), image: part(), plan: part() };
            let mine = WORLD.parts();
            let same = (parts.instruction, parts.image, parts.plan) == (mine.instruction, mine.image, mine.plan);
            assert_eq!(WORLD.examine(&WORLD.permit, parts).is_ok(), same);
        }
        b'k' => {
            let Ok(keys) = std::str::from_utf8(rest).map(PublicKeys::from_jwk_set) else { return };
            assert!(keys.is_err() || keys.is_ok_and(|keys| (1..=KEYS_MAX).contains(&keys.iter().count())));
        }
        _ => {
            let known = rest == WORLD.permit || rest == WORLD.release;
            assert_eq!(WORLD.examine(rest, WORLD.parts()).is_ok(), known, "a token nobody signed");
        }
    }
}

/// The arguments of `CheckInline` as they lie in a message: what is taken is within the limits, whichever the byte
/// order. The first byte says which.
pub fn options(bytes: &[u8]) {
    let Some((order, rest)) = bytes.split_first() else { return };
    let endian = if order % 2 == 0 { LE } else { BE };
    let data = Data::new(rest, Context::new_dbus(endian, 0));
    let Ok(((image, instruction, plan, pairs), _)) = data.deserialize::<(Vec<u8>, &str, &str, Pairs<'_>)>() else {
        return;
    };
    let limits = Limits::default();
    let (_, _) = (limits.texts(instruction, plan), limits.image(image.len()));
    match pairs.read(&limits) {
        Ok(options) => {
            assert!((limits.deadline_min..=limits.deadline_max).contains(&options.deadline));
            let longest = |text: &Option<String>| text.as_ref().map_or(0, String::len);
            assert!(longest(&options.plan_id) <= OPTION_TEXT_BYTES_MAX);
            assert!(longest(&options.planner) <= OPTION_TEXT_BYTES_MAX);
            assert!(longest(&options.audience) <= NAME_BYTES_MAX);
            assert!(serde_json::to_value(&options).is_ok_and(|written| written.is_object()));
        }
        Err(OptionsError::Failure(failure)) => assert_eq!(failure.reason(), Reason::InputLimit),
        Err(OptionsError::Misuse(misuse)) => assert!(misuse.to_string().len() < 4096),
    }
}

/// The constitution as shipped.
static SHIPPED: LazyLock<Constitution> = LazyLock::new(|| {
    Constitution::parse(include_str!("../../config/constitution.toml")).expect("the shipped constitution")
});

/// Where logs are laid out: memory, where the system has a folder for it.
static SCRATCH: LazyLock<std::path::PathBuf> = LazyLock::new(|| {
    let memory = Path::new("/dev/shm");
    if memory.is_dir() { memory.to_owned() } else { std::env::temp_dir() }
});

const ISSUER: &str = "steadfast-test";
const AUDIENCE: &str = "arm-1";
/// A second after the committed permits were signed.
const NOW: Moment = Moment {
    unix_s: 1_800_000_001,
    boot_id: BootId([16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29, 30, 31]),
    boottime_ns: 6_000_000_000,
};

/// The permits that other libraries made, and the key they were made with: `tests/reference/permit/vectors.json`.
struct World {
    seed: [u8; 32],
    verifier: Verifier,
    instruction: Vec<u8>,
    image: Vec<u8>,
    plan: Vec<u8>,
    permit: Vec<u8>,
    release: Vec<u8>,
}

static WORLD: LazyLock<World> = LazyLock::new(|| {
    let text = include_str!("../../tests/reference/permit/vectors.json");
    let vectors: serde_json::Value = serde_json::from_str(text).expect("the committed vectors");
    let bytes = |name: &str| hex::decode(vectors[name].as_str().expect("text")).expect("hexadecimal");
    let seed = bytes("seed").try_into().expect("32 bytes");
    let keys = PublicKeys::new(vec![SigningKey::from_seed(&seed).public()]).expect("one key");
    World {
        seed,
        verifier: Verifier::new(keys),
        instruction: bytes("instruction"),
        image: bytes("image"),
        plan: bytes("plan"),
        permit: bytes("permit"),
        release: bytes("release"),
    }
});

impl World {
    fn parts(&self) -> Parts<'_> {
        Parts { instruction: &self.instruction, image: &self.image, plan: &self.plan }
    }

    fn examine(&self, token: &[u8], parts: Parts<'_>) -> Result<Claims, steadfast::permit::verify::Rejection> {
        let expectation = Expectation::new(ISSUER, AUDIENCE, Clock::SameMachine(NOW));
        self.verifier.examine(token, parts, &expectation)
    }

    /// What a thief of the key could make: any claims at all, in a header as it should be.
    fn signed(&self, payload: &[u8]) -> Vec<u8> {
        use coset::TaggedCborSerializable as _;
        use ed25519_dalek::Signer as _;
        let key = ed25519_dalek::SigningKey::from_bytes(&self.seed);
        let key_id = SigningKey::from_seed(&self.seed).id().as_bytes().to_vec();
        let header = coset::HeaderBuilder::new().algorithm(coset::iana::Algorithm::EdDSA).key_id(key_id).build();
        let message = coset::CoseSign1Builder::new()
            .protected(header)
            .payload(payload.to_vec())
            .create_signature(&[], |bytes| key.sign(bytes).to_bytes().to_vec());
        message.build().to_tagged_vec().expect("encodes")
    }
}
