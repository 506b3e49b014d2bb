//! What a vetoed robot saw: images kept as files named by their digest, and one page per veto that says which belong
//! to it, the seconds before included.
//!
//! ```text
//! evidence/images/<sha-256 of the bytes>      the encoded image as received
//! evidence/vetoes/<stamp>-<check id>.json     the triples, oldest first, the vetoed one last
//! ```
//!
//! Bounded in bytes and in vetoes; the oldest vetoes go first, and an image goes when no page names it any more. The
//! record in the log carries the same digests, so a file that was changed is recognised. Evidence is no record: losing
//! it never holds an answer up, so call this from a thread of its own. With redaction on, do not call it at all.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::io::{self, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::recent::Glimpse;
use super::record::{CheckId, Stamp};
use super::segment::sync_dir;
use crate::triple::{Digest, Digests};

/// Most bytes of evidence, images and pages together, that a deployment may ask for.
pub const EVIDENCE_BYTES_MAX: u64 = 64 * 1024 * 1024 * 1024;
/// Most vetoes whose evidence is kept.
pub const VETOES_MAX: usize = 4096;

/// One triple on a page of evidence.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Exhibit {
    /// The check it was judged in.
    pub check_id: CheckId,
    /// When it came in.
    pub at: Stamp,
    /// What the robot was told.
    pub instruction: String,
    /// What the planner answered.
    pub plan: String,
    /// Digests of the triple; the image's is its file's name.
    pub digests: Digests,
    /// Size of the image, in bytes.
    pub image_bytes: u64,
}

/// The evidence of one veto.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Page {
    /// The vetoed check.
    pub check_id: CheckId,
    /// The triples, oldest first; the vetoed one last.
    pub exhibits: Vec<Exhibit>,
}

/// The directory of evidence.
#[derive(Debug)]
pub struct Evidence {
    dir: PathBuf,
    bytes_max: u64,
    bytes: u64,
    /// Pages by file name, oldest first: their size and the images they name.
    pages: BTreeMap<String, (u64, BTreeSet<Digest>)>,
    /// Images: size, and on how many pages.
    images: BTreeMap<Digest, (u64, usize)>,
}

impl Evidence {
    /// Opens a directory of evidence, or makes one. Pages that cannot be read and images that no page names (a crash
    /// leaves such) are removed.
    ///
    /// # Errors
    /// When the directory cannot be made or read.
    pub fn open(dir: impl Into<PathBuf>, bytes_max: u64) -> io::Result<Self> {
        let dir = dir.into();
        for part in ["images", "vetoes"] {
            fs::DirBuilder::new().recursive(true).mode(0o750).create(dir.join(part))?;
        }
        let bytes_max = bytes_max.min(EVIDENCE_BYTES_MAX);
        let mut evidence = Self { dir, bytes_max, bytes: 0, pages: BTreeMap::new(), images: BTreeMap::new() };
        for (name, path) in files(&evidence.dir.join("vetoes"))? {
            // What is still being written has another ending.
            let bytes = fs::read(&path).ok().filter(|_| name.ends_with(".json"));
            match bytes.and_then(|bytes| Some((bytes.len(), serde_json::from_slice::<Page>(&bytes).ok()?))) {
                Some((bytes, page)) => evidence.enter(name, as_u64(bytes), &page),
                None => fs::remove_file(path)?,
            }
        }
        for (name, path) in files(&evidence.dir.join("images"))? {
            let known = Digest::parse(&name).is_ok_and(|digest| evidence.images.contains_key(&digest));
            if !known {
                fs::remove_file(path)?;
            }
        }
        evidence.make_room(0)?;
        Ok(evidence)
    }

    fn enter(&mut self, name: String, bytes: u64, page: &Page) {
        let mut images = BTreeSet::new();
        for exhibit in &page.exhibits {
            if images.insert(exhibit.digests.image) {
                let (size, pages) = self.images.entry(exhibit.digests.image).or_insert((exhibit.image_bytes, 0));
                *pages += 1;
                if *pages == 1 {
                    self.bytes += *size;
                }
            }
        }
        self.bytes += bytes;
        self.pages.insert(name, (bytes, images));
    }

    /// Keeps a veto's triple and those before it. Gives the page's path; `None` where it is larger than all evidence
    /// may be.
    ///
    /// # Errors
    /// When a file cannot be written. What was written of it is removed at the next opening.
    pub fn keep(&mut self, vetoed: &Glimpse, before: &[impl AsRef<Glimpse>]) -> io::Result<Option<PathBuf>> {
        let earlier = before.iter().map(AsRef::as_ref).filter(|glimpse| glimpse.check_id != vetoed.check_id);
        let glimpses: Vec<&Glimpse> = earlier.chain([vetoed]).collect();
        let exhibits: Vec<Exhibit> = glimpses.iter().map(|glimpse| exhibit(glimpse)).collect();
        let page = Page { check_id: vetoed.check_id, exhibits };
        let json = serde_json::to_vec_pretty(&page)?;
        let images: BTreeMap<Digest, &[u8]> = page
            .exhibits
            .iter()
            .zip(&glimpses)
            .map(|(exhibit, glimpse)| (exhibit.digests.image, &*glimpse.image))
            .collect();
        let bytes = images.values().map(|image| as_u64(image.len())).sum::<u64>() + as_u64(json.len());
        if bytes > self.bytes_max {
            return Ok(None);
        }
        self.make_room(bytes)?;
        for (digest, image) in &images {
            if !self.images.contains_key(digest) {
                write_new(&self.image_path(digest), image)?;
            }
        }
        sync_dir(&self.dir.join("images"))?;
        // The page last: a page never names an image that is not there.
        // Behind every other, also where the wall clock was set back: the name says what goes first.
        let newest = self.pages.last_key_value().and_then(|(name, _)| name.split('-').next()?.parse::<u64>().ok());
        let place = newest.map_or(vetoed.at.wall_ns, |newest| vetoed.at.wall_ns.max(newest.saturating_add(1)));
        let name = format!("{place:020}-{}.json", vetoed.check_id);
        let path = self.dir.join("vetoes").join(&name);
        write_new(&path, &json)?;
        sync_dir(&self.dir.join("vetoes"))?;
        self.enter(name, as_u64(json.len()), &page);
        Ok(Some(path))
    }

    /// Removes the oldest vetoes' evidence until this many bytes and one page more fit.
    fn make_room(&mut self, bytes: u64) -> io::Result<()> {
        while self.bytes + bytes > self.bytes_max || self.pages.len() >= VETOES_MAX {
            let Some((name, (size, images))) = self.pages.pop_first() else { break };
            fs::remove_file(self.dir.join("vetoes").join(name))?;
            self.bytes -= size;
            for digest in images {
                let Some((size, pages)) = self.images.get_mut(&digest) else { continue };
                *pages -= 1;
                if *pages == 0 {
                    self.bytes -= *size;
                    self.images.remove(&digest);
                    fs::remove_file(self.image_path(&digest))?;
                }
            }
        }
        Ok(())
    }

    fn image_path(&self, digest: &Digest) -> PathBuf {
        self.dir.join("images").join(digest.to_string())
    }

    /// Bytes of evidence at present.
    #[must_use]
    pub const fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Vetoes with evidence at present.
    #[must_use]
    pub fn vetoes(&self) -> usize {
        self.pages.len()
    }
}

/// The page of a check, from a directory of evidence that this process need not own.
///
/// # Errors
/// When the directory or the page cannot be read.
pub fn page_of(dir: &Path, check_id: CheckId) -> io::Result<Option<Page>> {
    let ending = format!("-{check_id}.json");
    let found = files(&dir.join("vetoes"))?.into_iter().find(|(name, _)| name.ends_with(&ending));
    found.map(|(_, path)| Ok(serde_json::from_slice(&fs::read(path)?)?)).transpose()
}

fn exhibit(glimpse: &Glimpse) -> Exhibit {
    Exhibit {
        check_id: glimpse.check_id,
        at: glimpse.at.clone(),
        instruction: glimpse.instruction.clone(),
        plan: glimpse.plan.clone(),
        digests: Digests::of(glimpse.instruction.as_bytes(), &glimpse.image, glimpse.plan.as_bytes()),
        image_bytes: as_u64(glimpse.image.len()),
    }
}

/// Writes beside and renames over, so that a file is whole or not there.
fn write_new(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let beside = path.with_extension("writing");
    let mut file = File::options().write(true).create(true).truncate(true).mode(0o640).open(&beside)?;
    file.write_all(bytes)?;
    file.sync_data()?;
    fs::rename(beside, path)
}

fn files(dir: &Path) -> io::Result<Vec<(String, PathBuf)>> {
    let mut files = Vec::new();
    for entry in fs::read_dir(dir)? {
        let entry = entry?;
        if let Ok(name) = entry.file_name().into_string() {
            files.push((name, entry.path()));
        }
    }
    files.sort();
    Ok(files)
}

fn as_u64(bytes: usize) -> u64 {
    u64::try_from(bytes).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::super::record::tests::stamp;
    use super::*;

    fn glimpse(id: u8, image: &[u8]) -> Arc<Glimpse> {
        Arc::new(Glimpse {
            check_id: CheckId::from_bytes([id; 16]),
            at: stamp(u64::from(id)),
            instruction: "pour".to_owned(),
            image: image.into(),
            plan: "1. pour".to_owned(),
        })
    }

    fn on_disk(dir: &Path) -> u64 {
        ["images", "vetoes"]
            .iter()
            .flat_map(|part| files(&dir.join(part)).expect("readable"))
            .map(|(_, path)| fs::metadata(path).expect("there").len())
            .sum()
    }

    #[test]
    fn a_veto_keeps_its_image_and_those_before_it_once_each() {
        let dir = tempfile::tempdir().expect("a directory");
        let mut evidence = Evidence::open(dir.path(), 1 << 20).expect("opens");
        let before = [glimpse(1, b"same"), glimpse(2, b"same"), glimpse(3, b"vetoed")];
        let path = evidence.keep(&glimpse(3, b"vetoed"), &before).expect("written").expect("fits");
        let page: Page = serde_json::from_slice(&fs::read(path).expect("there")).expect("a page");
        let ids: Vec<u8> = page.exhibits.iter().map(|exhibit| exhibit.check_id.as_bytes()[0]).collect();
        assert_eq!(ids, [1, 2, 3]);
        assert_eq!(files(&dir.path().join("images")).expect("readable").len(), 2);
        for (name, path) in files(&dir.path().join("images")).expect("readable") {
            assert_eq!(Digest::of(&fs::read(path).expect("there")).to_string(), name);
        }
        assert_eq!(page_of(dir.path(), CheckId::from_bytes([3; 16])).expect("readable"), Some(page));
        assert_eq!(page_of(dir.path(), CheckId::from_bytes([1; 16])).expect("readable"), None);
    }

    #[test]
    fn a_clock_set_back_does_not_make_the_newest_evidence_the_first_to_go() {
        let dir = tempfile::tempdir().expect("a directory");
        let none: [Arc<Glimpse>; 0] = [];
        let mut evidence = Evidence::open(dir.path(), 8000).expect("opens");
        let kept = |id: u8| page_of(dir.path(), CheckId::from_bytes([id; 16])).expect("readable").is_some();
        for id in (1..=20).rev() {
            evidence.keep(&glimpse(id, &[id; 1000]), &none).expect("written").expect("fits");
            assert!(kept(id), "{id}");
        }
        assert!(kept(2) && !kept(20));
    }

    #[test]
    fn bytes_are_bounded_oldest_first_and_counted_as_they_lie() {
        let dir = tempfile::tempdir().expect("a directory");
        let none: [Arc<Glimpse>; 0] = [];
        let mut evidence = Evidence::open(dir.path(), 8000).expect("opens");
        for id in 1..=20 {
            // Every other image is the same one: it stays as long as any page names it.
            let image = if id % 2 == 0 { vec![0; 1000] } else { vec![id; 1000] };
            evidence.keep(&glimpse(id, &image), &none).expect("written").expect("fits");
            assert!(evidence.bytes() <= 8000);
            assert_eq!(evidence.bytes(), on_disk(dir.path()));
        }
        assert!(page_of(dir.path(), CheckId::from_bytes([1; 16])).expect("readable").is_none());
        assert!(page_of(dir.path(), CheckId::from_bytes([20; 16])).expect("readable").is_some());
        assert_eq!(evidence.keep(&glimpse(21, &[1; 9000]), &none).expect("no error"), None);

        let (bytes, vetoes) = (evidence.bytes(), evidence.vetoes());
        fs::write(dir.path().join("images/stray"), b"left by a crash").expect("written");
        fs::write(dir.path().join("vetoes/torn.json"), b"{\"check_id\":").expect("written");
        let again = Evidence::open(dir.path(), 8000).expect("opens");
        assert_eq!((again.bytes(), again.vetoes()), (bytes, vetoes));
        assert_eq!(again.bytes(), on_disk(dir.path()));
    }
}
