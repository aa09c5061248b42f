"""Results print in a few lines."""

import seachange as sc
from seachange.params import table_of
from seachange.policies.objective_choice import Candidate, Choice


def test_rows_stand_below_each_other():
    assert table_of("Title", [], [("a", "1"), ("long", "two")]) == "Title\n  a     1\n  long  two"
    assert table_of("Title", ("", "n"), [("a", "1"), ("b", "10")]) == "Title\n      n\n  a   1\n  b  10"
    assert table_of("Title", [], []) == "Title"


def test_a_choice_shows_its_candidates():
    choice = Choice("dm", (Candidate("dr", 0.61, 0.0, 0.0), Candidate("dm", 0.6085, 0.0015, 0.002)), 3)
    assert repr(choice).splitlines() == [
        "Choice: dm (3 held-out blocks of time)",
        "                  gap",
        "  dr  0.0000 ± 0.0000",
        "  dm  0.0015 ± 0.0020  chosen",
    ]


def test_values_diagnostics_and_propensities_are_short(make_log):
    log = make_log("shared", n=2000)
    policy = sc.DMLearner().fit(log).policy_
    (estimate,) = sc.evaluate(log, policy, ("dr",))
    assert repr(estimate).startswith(f"ValueEstimate(dr: {estimate.value:.4g}, 95% interval {estimate.low:.4g} to ")
    assert repr(sc.evaluate_online(log, sc.SinglePolicy(policy))).startswith("OnlineEstimate(replay: ")
    told = repr(sc.diagnose(log, policy)).splitlines()
    assert told[0] == "Diagnostics: sound"
    assert told[1].split()[:2] == ["effective", "sample"]
    told = repr(sc.propensity_report(log, sc.estimate_logging_probs(log))).splitlines()
    assert told[0] == "PropensityReport: 2,000 rounds"
    assert [line.split()[1] for line in told[-3:]] == ["0", "1", "2"]
    assert max(map(len, told)) <= 80


def test_objects_with_arrays_print_in_a_line_or_two(make_log):
    log = make_log("shared", n=600)
    model = sc.learn(log, oracle=sc.HMMOracle(n_states=2), objective="dm")
    deployer, live = model.deployer(), sc.LiveFilter(model)
    state = deployer.init()
    decision = deployer.act(state, log.contexts[0], 0.3)
    world = sc.simulate.Synthetic(horizon=900, segment_length=300)
    table = sc.TabularLearner().fit(world.log(0)).policy_
    assert repr(deployer) == "AdaptiveSampling(2 states, 3 actions, exploration=0.0, memory=100000)"
    assert repr(sc.SinglePolicy(table)) == "SinglePolicy(1 state, 5 actions, exploration=0.0, memory=100000)"
    assert repr(model.policies).startswith("PolicySet(2 policies (SoftmaxPolicy), expected_stay=")
    assert repr(model.labels).startswith("StateLabels(600 rounds, 2 states, ")
    trace = sc.simulate.rollout(world, sc.SinglePolicy(table), seed=0)
    assert repr(trace).startswith("Trace(actions=int64[900], propensities=float64[900], ")
    bounds = sc.model_bounds(log, model)
    assert len(repr(bounds).splitlines()) == 2 + len(bounds.bounds)
    for each in (
        log, model, model.policies[0], model.oracle, model.oracle.model_, model.provenance, deployer, state, decision,
        model.deployer("exp4s"), live, live.init(), table, trace, next(world.rounds(0, 300)),
        sc.ChangePointOracle().fit(world.log(0)).segmentation_, sc.DMLearner().fit(log).reward_model_,
        sc.evaluate_over_time(log, model.policies[0]), sc.watch(log, model.policies[0], reward_range=(-9, 9)),
    ):  # fmt: skip
        assert "\n" not in repr(each)
        assert len(repr(each)) < 600


def test_no_value_is_reported_with_its_reason(make_log):
    log = make_log(n=20)
    found = sc.diagnose(log, sc.DMLearner().fit(log).policy_)
    assert repr(found).startswith("Diagnostics: no estimate should be given")
    assert str(found.refusals[0]) in repr(found)
