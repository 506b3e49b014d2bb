"""Reference for constitution::nearest::Lexicon: scikit-learn's TfidfVectorizer on words that are their own stems.

Run: python3 tests/reference/lexicon.py > tests/reference/lexicon.in   (needs scikit-learn)
"""
from sklearn.feature_extraction.text import TfidfVectorizer

rules = ["metal foil oven metal", "hot oil oven", "sharp blad cup"]
task = "hot metal oven oven cup zebra"
vectorizer = TfidfVectorizer(sublinear_tf=True, smooth_idf=True, norm="l2", token_pattern=r"\S+")
cosines = (vectorizer.fit_transform(rules) @ vectorizer.transform([task]).T).toarray().ravel()
ranked = sorted(zip(range(1, 4), cosines), key=lambda rule: -rule[1])
print("[" + ", ".join(f"({number}_u16, {float(cosine)!r}_f64)" for number, cosine in ranked) + "]")
