//! Writing read off an edited picture, for the two constraints that pixels alone do not answer: that the object is not
//! itself text, and that no readable text came in.
//!
//! The reader is Tesseract, which brings its models along, as a process of its own: it is shown the edited box and what
//! changed markedly in it, enlarged, and where it reads something there, the same of the clean picture. What it is given,
//! what it says and how long it takes are bounded.

use std::ffi::OsStr;
use std::io::{ErrorKind, Read, Write as _};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use image::RgbImage;
use image::imageops::crop_imm;

use super::support::whole;
use super::{Edit, Region, editor};
use crate::scene::resize::{self, Filter, ResizeError};
use crate::statistics::count;

/// The program, as the PATH has it.
pub const PROGRAM: &str = "tesseract";
/// How to come by it.
pub const INSTALL: &str = "Debian and Ubuntu: apt install tesseract-ocr";
/// Least confidence of a word that counts, of 100. On renders that nothing here is tested on, what was read where nothing
/// is written stayed at or under 65, and of drawn words most that were read rightly lay over 90.
const CONFIDENCE_MIN: f64 = 70.0;
/// Fewest letters and digits of a word: single ones are read off any edge.
const LETTERS_MIN: usize = 2;
/// Share of the object's box from which written words make it text. A box found by what changed has room on every side, so
/// that words which are all there is cover at most 59 % of it: half of that.
const TEXT_SHARE_MIN: f64 = 0.3;
/// Enlargement of the box: Tesseract wants letters of 20 pixels, and five are the smallest that a person reads.
const ENLARGED: f64 = 4.0;
/// Longest side of what Tesseract is shown, in pixels: larger boxes are of large pictures, with large letters.
const SIDE_MAX_PX: f64 = 2_400.0;
/// Longest that it may take. A box takes tenths of a second.
const DEADLINE: Duration = Duration::from_secs(60);
/// Pause between two looks whether it has ended.
const PAUSE: Duration = Duration::from_millis(5);
/// Most that it may say, in bytes.
const SAID_BYTES_MAX: u64 = 1 << 20;
/// Columns of a line of its answer, and the level of a line that is a word.
const COLUMNS: usize = 12;
const WORD_LEVEL: &str = "5";

/// Why nothing could be read.
#[derive(Debug, thiserror::Error)]
pub enum OcrError {
    /// It cannot be started or heard.
    #[error("{program}: {source}")]
    Run {
        /// The program.
        program: PathBuf,
        /// Why not.
        source: std::io::Error,
    },
    /// It ended with a failure.
    #[error("{program} failed ({status}): {said}")]
    Failed {
        /// The program.
        program: PathBuf,
        /// How it ended.
        status: std::process::ExitStatus,
        /// What it said.
        said: String,
    },
    /// It took too long, and was ended.
    #[error("{program} did not answer within {within:?}, and was ended")]
    Late {
        /// The program.
        program: PathBuf,
        /// How long it had.
        within: Duration,
    },
    /// It says more than a box can hold.
    #[error("{0} said more than {SAID_BYTES_MAX} bytes of one picture")]
    Long(PathBuf),
    /// It answers in another form.
    #[error("{program} answers in a form that is not known here: {line:?}")]
    Form {
        /// The program.
        program: PathBuf,
        /// The line that is not.
        line: String,
    },
    /// It has no English.
    #[error("{0} has no model for English; {INSTALL}")]
    NoEnglish(PathBuf),
    /// The box cannot be enlarged.
    #[error(transparent)]
    Resize(#[from] ResizeError),
}

/// Tesseract, found and asked for its version.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reader {
    program: PathBuf,
    version: String,
    deadline: Duration,
}

/// A word that was read, in the picture's pixels.
#[derive(Debug)]
struct Word {
    letters: String,
    confidence: f64,
    place: Region,
}

impl Reader {
    /// The reader of this name or path; `None` where there is no such program.
    ///
    /// # Errors
    /// When there is one, and it does not answer as Tesseract or has no English.
    pub fn find(program: impl Into<PathBuf>) -> Result<Option<Self>, OcrError> {
        let mut reader = Self { program: program.into(), version: String::new(), deadline: DEADLINE };
        let version = match reader.ask(&["--version"], Vec::new()) {
            Err(OcrError::Run { source, .. }) if source.kind() == ErrorKind::NotFound => return Ok(None),
            told => told?,
        };
        let line = version.lines().next().unwrap_or_default().trim();
        if !line.starts_with("tesseract ") {
            return Err(OcrError::Form { program: reader.program, line: line.to_owned() });
        }
        reader.version = line.to_owned();
        let languages = reader.ask(&["--list-langs"], Vec::new())?;
        if !languages.lines().any(|language| language.trim() == "eng") {
            return Err(OcrError::NoEnglish(reader.program));
        }
        Ok(Some(reader))
    }

    /// What identifies it in the record: name and version.
    #[must_use]
    pub fn version(&self) -> &str {
        &self.version
    }

    /// The constraint on writing that an edit breaks, if any.
    ///
    /// # Errors
    /// When Tesseract does not answer.
    pub fn broken(&self, clean: &RgbImage, edit: &Edit) -> Result<Option<&'static str>, OcrError> {
        // A frame around a card hides its writing from the reader: a box that ends where the card does has none.
        let marked = editor::changed_markedly(clean, &edit.image).filter(|marked| *marked != edit.region);
        let boxes: Vec<Region> = std::iter::once(edit.region).chain(marked).collect();
        let read = |picture: &RgbImage| -> Result<Vec<Word>, OcrError> {
            let words = boxes.iter().map(|region| self.words(picture, region));
            Ok(words.collect::<Result<Vec<_>, _>>()?.into_iter().flatten().collect())
        };
        let mut words = read(&edit.image)?;
        words.retain(|word| word.confidence >= CONFIDENCE_MIN && changed(clean, &edit.image, &word.place));
        if words.is_empty() {
            return Ok(None);
        }
        // Whatever was read there before, however unsurely, did not come in; neither did what the object left of it.
        let before = read(clean)?;
        words.retain(|word| !before.iter().any(|old| old.letters.contains(&word.letters)));
        Ok(match words.len() {
            0 => None,
            _ if written_on(&edit.object, &words) >= TEXT_SHARE_MIN => Some("object-is-text"),
            _ => Some("text-came-in"),
        })
    }

    /// The words in a box of a picture.
    fn words(&self, picture: &RgbImage, region: &Region) -> Result<Vec<Word>, OcrError> {
        let cut = crop_imm(picture, region.x, region.y, region.width, region.height).to_image();
        let longest = f64::from(region.width.max(region.height)).max(1.0);
        let scale = ENLARGED.min(SIDE_MAX_PX / longest);
        let side = |pixels: u32| whole((scale * f64::from(pixels)).round()).max(1);
        let shown = resize::resize(&cut, side(region.width), side(region.height), Filter::Bicubic)?;
        let mut pixmap = format!("P6\n{} {}\n255\n", shown.width(), shown.height()).into_bytes();
        pixmap.extend_from_slice(shown.as_raw());
        // As an option: a file of the working directory could stand in for the usual name of a set of options.
        let table = ["-", "-", "--psm", "11", "--dpi", "300", "-l", "eng", "-c", "tessedit_create_tsv=1"];
        let said = self.ask(&table, pixmap)?;
        // The first line names the columns.
        let words = said.lines().skip(1).map(|line| self.word(line, region, scale));
        words.filter_map(Result::transpose).collect()
    }

    /// The word of a line, if it holds one that counts as a word.
    fn word(&self, line: &str, region: &Region, scale: f64) -> Result<Option<Word>, OcrError> {
        let form = || OcrError::Form { program: self.program.clone(), line: line.to_owned() };
        let fields: Vec<&str> = line.splitn(COLUMNS, '\t').collect();
        let [level, _, _, _, _, _, left, top, width, height, confidence, text] = fields.as_slice() else {
            return Err(form());
        };
        let letters: String = text.chars().filter(|c| c.is_alphanumeric()).flat_map(char::to_lowercase).collect();
        if *level != WORD_LEVEL || letters.chars().count() < LETTERS_MIN {
            return Ok(None);
        }
        let number = |field: &str| field.parse::<f64>().map_err(|_| form());
        let back = |field: &str| number(field).map(|pixels| pixels / scale);
        let (x, y) = (back(left)?, back(top)?);
        let along = |from: f64, far: f64| whole((from + far).ceil()).saturating_sub(whole(from));
        let place = Region {
            x: region.x.saturating_add(whole(x)),
            y: region.y.saturating_add(whole(y)),
            width: along(x, back(width)?),
            height: along(y, back(height)?),
        };
        Ok(Some(Word { letters, confidence: number(confidence)?, place }))
    }

    /// Runs it once over these bytes, and gives what it says.
    fn ask(&self, arguments: &[impl AsRef<OsStr>], input: Vec<u8>) -> Result<String, OcrError> {
        let broken = |source| OcrError::Run { program: self.program.clone(), source };
        let mut child = Command::new(&self.program)
            .args(arguments)
            // A box is too small to be shared among threads, which only wait for each other.
            .env("OMP_THREAD_LIMIT", "1")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .map_err(broken)?;
        if let Some(mut stdin) = child.stdin.take() {
            // Where it stops reading, it ends, and says why.
            std::thread::spawn(move || drop(stdin.write_all(&input)));
        }
        let (said, complaint) = (child.stdout.take().map(heard), child.stderr.take().map(heard));
        let late = || OcrError::Late { program: self.program.clone(), within: self.deadline };
        let status = ended(&mut child, self.deadline).map_err(broken)?.ok_or_else(late)?;
        // Who ended holds no pipe open; what it started might.
        let text = |from: Option<Receiver<Vec<u8>>>| from.and_then(|from| from.recv_timeout(self.deadline).ok());
        let said = text(said).ok_or_else(late)?;
        if u64::try_from(said.len()).is_ok_and(|bytes| bytes >= SAID_BYTES_MAX) {
            return Err(OcrError::Long(self.program.clone()));
        }
        if !status.success() {
            let said = text(complaint).unwrap_or_default();
            let said = String::from_utf8_lossy(&said).lines().next().unwrap_or_default().to_owned();
            return Err(OcrError::Failed { program: self.program.clone(), status, said });
        }
        Ok(String::from_utf8_lossy(&said).into_owned())
    }
}

/// Reads a pipe to its end, or as far as it may go, on a thread of its own.
fn heard(pipe: impl Read + Send + 'static) -> Receiver<Vec<u8>> {
    let (tell, told) = channel();
    std::thread::spawn(move || {
        let mut bytes = Vec::new();
        // A pipe that breaks has said what it has said; how the child ended tells the rest.
        drop(pipe.take(SAID_BYTES_MAX).read_to_end(&mut bytes));
        drop(tell.send(bytes));
    });
    told
}

/// How a child ended; `None` where it did not in time, and was made to. Pauses are counted, not read off a clock: on a
/// busy machine they last longer, and so may the child.
fn ended(child: &mut Child, within: Duration) -> std::io::Result<Option<std::process::ExitStatus>> {
    for _ in 0..within.as_millis() / PAUSE.as_millis() {
        if let Some(status) = child.try_wait()? {
            return Ok(Some(status));
        }
        std::thread::sleep(PAUSE);
    }
    child.kill()?;
    child.wait().map(|_| None)
}

/// The share of a box that words cover; one that was read twice covers no more.
fn written_on(object: &Region, words: &[Word]) -> f64 {
    let columns = object.x..object.x.saturating_add(object.width);
    let rows = object.y..object.y.saturating_add(object.height);
    let pixels = rows.flat_map(|y| columns.clone().map(move |x| (x, y)));
    let written = pixels.filter(|(x, y)| words.iter().any(|word| word.place.holds(*x, *y))).count();
    count(written) / count(usize::try_from(object.area()).unwrap_or(usize::MAX)).max(1.0)
}

/// Whether two pictures differ anywhere in a box.
fn changed(clean: &RgbImage, edited: &RgbImage, region: &Region) -> bool {
    let pixels = |picture: &RgbImage| crop_imm(picture, region.x, region.y, region.width, region.height).to_image();
    pixels(clean) != pixels(edited)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;
    use std::path::Path;

    use super::*;

    const ROW: &str = "5\t1\t1\t1\t1\t1\t40\t80\t120\t20\t91.5\tStop!";

    /// A program that does this, whatever it is asked.
    fn reader(folder: &Path, script: &str) -> Reader {
        let program = folder.join("reader");
        std::fs::write(&program, format!("#!/bin/sh\n{script}\n")).expect("written");
        std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o755)).expect("made to run");
        Reader { program, version: String::new(), deadline: Duration::from_millis(600) }
    }

    #[test]
    fn a_word_lies_where_it_was_read() {
        let reader = Reader { program: PROGRAM.into(), version: String::new(), deadline: DEADLINE };
        let region = Region { x: 100, y: 50, width: 60, height: 60 };
        let word = |line: &str| reader.word(line, &region, 4.0);
        let stop = word(ROW).expect("a line").expect("a word");
        assert_eq!((stop.letters.as_str(), stop.place), ("stop", Region { x: 110, y: 70, width: 30, height: 5 }));
        assert!((stop.confidence - 91.5).abs() < 1e-9);
        for line in [ROW.replace("Stop!", "|"), ROW.replace("Stop!", "S"), ROW.replacen('5', "4", 1)] {
            assert!(word(&line).expect("a line").is_none(), "{line}");
        }
        for line in ["", "5\t1", &ROW.replace("91.5", "sure"), &ROW.replace("40", "left")] {
            assert!(word(line).is_err(), "{line}");
        }
    }

    #[test]
    fn a_reader_that_hangs_floods_or_fails_is_an_error_by_name() {
        let folder = tempfile::tempdir().expect("a folder");
        let picture = RgbImage::new(300, 300);
        let region = Region { x: 0, y: 0, width: 300, height: 300 };
        let error = |script: &str| reader(folder.path(), script).words(&picture, &region).expect_err(script);
        assert!(matches!(error("exec sleep 60"), OcrError::Late { .. }));
        // What it started lives on, and keeps the pipe open.
        assert!(matches!(error("sleep 5 & exit 0"), OcrError::Late { .. }));
        assert!(matches!(error("exec yes"), OcrError::Long(_)));
        assert!(matches!(error("echo columns; echo nonsense"), OcrError::Form { .. }));
        let failed = error("echo 'no such language' >&2; exit 3").to_string();
        assert!(failed.contains("no such language") && failed.contains('3'), "{failed}");
    }

    #[test]
    fn only_tesseract_with_english_is_a_reader() {
        let folder = tempfile::tempdir().expect("a folder");
        let find = |script: &str| Reader::find(reader(folder.path(), script).program);
        assert_eq!(Reader::find(folder.path().join("none")).expect("no error"), None);
        assert!(matches!(find("echo GNU something"), Err(OcrError::Form { .. })));
        assert!(matches!(find("echo tesseract 5.3.0"), Err(OcrError::NoEnglish(_))));
        let found = find("echo tesseract 5.3.0; echo eng").expect("no error").expect("a reader");
        assert_eq!(found.version(), "tesseract 5.3.0");
    }
}
