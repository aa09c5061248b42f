"""The Open Bandit Dataset's campaigns, on invented ones and on the published sample."""

import gzip
from pathlib import Path

import numpy as np
import pytest

from datasets.open_bandit_lines import HEADER, N_ITEMS, invented_campaign, read_slowly, rounds_of, write_items
from seachange.datasets.open_bandit import OpenBanditLog, looks_like
from seachange.errors import LogError
from seachange.reading import open_raw

SOUND = invented_campaign(3, np.random.default_rng(0))


@pytest.fixture
def campaign(tmp_path):
    def write(lines, name="all.csv"):
        (tmp_path / name).write_text("".join(f"{line}\n" for line in lines))
        write_items(tmp_path)
        return tmp_path

    return write


def test_of_a_folder_of_campaigns_one_is_to_be_named(campaign):
    folder = campaign(SOUND)
    (folder / "random" / "all").mkdir(parents=True)
    for name in ("all.csv", "item_context.csv"):
        (folder / name).rename(folder / "random" / "all" / name)
    with pytest.raises(LogError, match=r"folder of one policy and one campaign\. Pass '.*/random/all', or another"):
        open_raw(folder)
    assert len(next(open_raw(folder / "random" / "all").parts())) == 3


@pytest.mark.parametrize("rows", [1, 7, 1_000])
@pytest.mark.parametrize("ends", ["\n", "\r\n"])
@pytest.mark.parametrize("last", [True, False])
def test_rounds_are_those_of_a_slow_reader(tmp_path, rows, ends, last):
    lines = invented_campaign(30, np.random.default_rng(1))
    lines[5], lines[9], lines[12] = lines[5] + ",x", "", lines[12].replace("2019", "19")
    content = (ends.join(lines) + (ends if last else "")).encode()
    (tmp_path / "all.csv").write_bytes(content)
    parts = list(OpenBanditLog(tmp_path).parts(rows))
    assert max(map(len, parts)) <= rows
    rounds, rejected = rounds_of(parts)
    assert (rounds, rejected) == read_slowly(content)
    assert (len(rounds), rejected) == (27, [6, 13])


def test_one_file_or_its_folder_is_the_same(campaign):
    folder = campaign(SOUND, "women.csv")
    assert rounds_of(OpenBanditLog(folder).parts()) == rounds_of(OpenBanditLog(folder / "women.csv").parts())


def test_gzipped_campaigns_are_read(campaign):
    folder = campaign(SOUND)
    content = (folder / "all.csv").read_bytes()
    (folder / "all.csv").rename(folder / "plain")
    (folder / "all.csv.gz").write_bytes(gzip.compress(content))
    assert rounds_of(OpenBanditLog(folder).parts())[0] == read_slowly(content)[0]


def test_items_are_described_by_their_features_and_affinities(campaign):
    folder = campaign(SOUND)
    (plain,) = OpenBanditLog(folder).parts()
    assert plain.pool is None
    (part,) = OpenBanditLog(folder, item_features=True, affinities=True).parts()
    assert part.pool.offsets.tolist() == [0, 4, 8, 12]
    assert part.pool.names.to_list() == [0, 1, 2, 3] * 3
    assert part.pool.features.columns == ["item_feature_0", "item_feature_1", "affinity"]
    affinities = [float(each) for line in SOUND[1:] for each in line.split(",")[-N_ITEMS:]]
    assert part.pool.features["affinity"].to_list() == affinities
    assert part.pool.features["item_feature_0"].to_list() == [-1.0, -0.5, 0.0, 0.5] * 3
    assert part.action.to_list() == plain.action.to_list()
    (part,) = OpenBanditLog(folder, affinities=True).parts()
    assert part.pool.features.columns == ["affinity"]


def fields(**changes):
    """The second line with other fields."""
    named = dict(zip(HEADER, SOUND[2].split(","), strict=True)) | changes
    return ",".join(named[name] for name in HEADER)


BROKEN = {
    "a line must have 12 fields; this one has 2": "a,b",
    "a line must have 12 fields; this one has 13": SOUND[2] + ",",
    "timestamp must be a time with its zone, such as 2019-11-24 00:00:17.004101+00:00": fields(
        timestamp="2019-02-30 00:00:00"
    ),
    "item_id must be a whole number": fields(item_id="shirt"),
    "position must be a whole number": fields(position=""),
    "click must be a number": fields(click="yes"),
    "propensity_score must be a number": fields(propensity_score="1e999"),
}


@pytest.mark.parametrize("reason", BROKEN)
def test_a_line_that_breaks_a_rule_is_named_and_the_rest_is_read(campaign, reason):
    (part,) = OpenBanditLog(campaign([*SOUND[:2], BROKEN[reason], SOUND[3]])).parts()
    assert part.lines.tolist() == [2, 4]
    (rejected,) = part.rejected
    assert (rejected.source, rejected.line, rejected.reason) == ("all.csv", 3, reason)


def test_items_and_affinities_that_are_none_are_named(campaign):
    folder = campaign([*SOUND, fields(item_id="4"), fields(**{"user-item_affinity_1": "much"})])
    (part,) = OpenBanditLog(folder, affinities=True).parts()
    assert [(each.line, each.reason) for each in part.rejected] == [
        (5, "item_id must be one of the campaign's items"),
        (6, "user-item_affinity_… must be numbers"),
    ]


def test_text_that_is_not_utf8_is_named(tmp_path):
    lines = [line.encode() for line in SOUND]
    lines[2] = lines[2].replace(b"0000", b"\xff\xff\xff\xff", 1)
    (tmp_path / "all.csv").write_bytes(b"\n".join(lines) + b"\n")
    (part,) = OpenBanditLog(tmp_path).parts()
    assert [(each.line, each.reason) for each in part.rejected] == [
        (3, "the line is not UTF-8 text, or has a carriage return within")
    ]


def test_missing_user_features_are_missing(campaign):
    (part,) = OpenBanditLog(campaign([SOUND[0], fields(user_feature_1="")])).parts()
    assert part.features["user_feature_1"].to_list() == [None]


def test_folders_and_files_without_a_campaign_are_refused(tmp_path, campaign):
    with pytest.raises(LogError, match=r"has nothing\. Name the folder of one policy and one campaign"):
        list(OpenBanditLog(tmp_path).parts())
    with pytest.raises(LogError, match="cannot be read: No such file"):
        list(OpenBanditLog(tmp_path / "nowhere.csv").parts())
    folder = campaign(["a,b", "1,2"])
    with pytest.raises(LogError, match="has no column 'item_id'"):
        list(OpenBanditLog(folder).parts())
    campaign([SOUND[0] + ",click"])
    with pytest.raises(LogError, match="has the column 'click' twice"):
        list(OpenBanditLog(folder).parts())


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("item_id,price\n0,1\n", "has no columns item_id and item_feature_0"),
        ("item_id,item_feature_0\n0,1\n2,1\n", "must have each number from 0 up once"),
        ("item_id,item_feature_0\n0,1\n1,1\n", r"item_context.csv has 2, all.csv has affinities for 4"),
    ],
)
def test_items_that_do_not_fit_are_refused(campaign, content, message):
    folder = campaign(SOUND)
    (folder / "item_context.csv").write_text(content)
    with pytest.raises(LogError, match=message):
        list(OpenBanditLog(folder, item_features=True, affinities=True).parts())
    (folder / "item_context.csv").unlink()
    with pytest.raises(LogError, match=r"needs the file .*item_context.csv', which does not exist"):
        list(OpenBanditLog(folder, item_features=True).parts())


def test_campaigns_are_distinguished_from_other_tables(tmp_path, campaign):
    assert not looks_like(tmp_path, b"")
    assert looks_like(campaign(SOUND), b"")
    assert looks_like(Path("log"), SOUND[0].encode() + b"\r\n")
    assert not looks_like(Path("log"), b"timestamp,item_id,position,click,propensity_score\n")
    assert not looks_like(Path("log"), b"")


def test_the_published_sample_is_read(data_file):
    folder = data_file("open_bandit") / "random" / "all"
    log = OpenBanditLog(folder, item_features=True)
    (part,) = log.parts()
    assert (len(part), part.rejected, part.features.width, len(log.items)) == (10_000, (), 5, 80)
    assert looks_like(Path("log"), (folder / "all.csv").read_bytes()[:65536])
    assert (part.propensity == 1 / 80).all()
    assert sorted(part.features["position"].unique()) == ["1", "2", "3"]
    assert rounds_of(OpenBanditLog(folder).parts()) == read_slowly((folder / "all.csv").read_bytes())
