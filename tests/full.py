"""The tests that `make test` leaves to `make test-full`; both must pass before a change is merged.

`make test` runs the scheduler, the machines of both daemons, the store on SQLite, REST, the CLI with a fake master,
and about a dozen live grids. Listed here are tests that start a browser, a PostgreSQL server or a process for each
case, and tests of facts that a faster test also protects. A new file that takes over 5 s belongs here.
"""

from __future__ import annotations

FILES = (
    "tests/api/test_fuzz.py",
    "tests/api/test_object_storage.py",
    "tests/benchmarks/",
    "tests/cli/test_commands.py",
    "tests/cli/test_elastic.py",
    "tests/cli/test_missing_inputs.py",
    "tests/cli/test_printed_commands.py",
    "tests/cli/test_replay.py",
    "tests/docs/test_checkpoints_page.py",
    "tests/docs/test_command_lines.py",
    "tests/docs/test_manual.py",
    "tests/docs/test_python_page.py",
    "tests/faults/",
    "tests/live/test_chains.py",
    "tests/live/test_default_sandbox.py",
    "tests/live/test_deliver.py",
    "tests/live/test_environments.py",
    "tests/live/test_following.py",
    "tests/live/test_import_names.py",
    "tests/live/test_joining.py",
    "tests/live/test_knowing.py",
    "tests/live/test_local.py",
    "tests/live/test_looking.py",
    "tests/live/test_notifying.py",
    "tests/live/test_peers.py",
    "tests/live/test_restored.py",
    "tests/live/test_runaways.py",
    "tests/live/test_shared_folder.py",
    "tests/live/test_sleep.py",
    "tests/live/test_sweeps.py",
    "tests/live/test_waiting.py",
    "tests/live/test_wakes.py",
    "tests/packaging/",
    "tests/power/",
    "tests/simulator/test_study.py",
    "tests/simulator/test_sweep.py",
    "tests/simulator/test_traces.py",
    "tests/simulator/test_transfer.py",
    "tests/simulator/test_what_if.py",
    "tests/store/test_clock.py",
    "tests/store/test_whole_workload.py",
    "tests/transfers/test_assignment.py",
    "tests/transfers/test_forest.py",
    "tests/transfers/test_measured_network.py",
    "tests/transfers/test_planner.py",
    "tests/web/",
    "tests/worker/presence/",
    "tests/worker/test_doctor.py",
    "tests/worker/test_owner_page.py",
    "tests/worker/test_task_users.py",
)
"""Files, and folders with everything below them."""

TESTS = (
    "tests/api/test_main.py::",
    "tests/cli/test_joining.py::test_failed_try_keeps_an_earlier_membership",
    "tests/cli/test_joining.py::test_line_can_be_read_from_stdin",
    "tests/cli/test_streams.py::test_output_to_a_full_disk_is_an_error",
    "tests/cli/test_streams.py::test_unencodable_letter_is_printed_as_an_escape",
    "tests/docs/test_policies_page.py::test_the_examples_keep_the_contract",
    "tests/docs/test_tutorial.py::test_every_step_has_the_output_on_the_page",
    "tests/explored/test_explored.py::test_no_order_of_events_breaks_a_promise[two-equal-jobs",
    "tests/explored/test_explored.py::test_no_order_of_events_breaks_a_promise[two-tasks-that-need-one-licence",
    "tests/live/test_continuing.py::test_frozen_task_leaves_its_licence_and_continues_elsewhere",
    "tests/live/test_continuing.py::test_function_continues_after_its_exception_and_a_kill_of_its_agent",
    "tests/live/test_continuing.py::test_gang_continues_from_one_step_after_the_kill_of_a_member",
    "tests/live/test_continuing.py::test_replica_continues_where_the_owner_came_back",
    "tests/live/test_continuing.py::test_task_continues_after_each_kill_of_its_agent[bubblewrap]",
    "tests/live/test_functions.py::test_map_outlives_its_program_and_the_master",
    "tests/live/test_gangs.py::test_killed_member_ends_the_launch_as_one_failure",
    "tests/live/test_gangs.py::test_members_that_request_the_network_have_it_only_among_themselves",
    "tests/live/test_owner.py::test_task_is_preempted_when_the_owner_returns_and_ends_elsewhere",
    "tests/live/test_survival.py::test_disconnected_worker_returns_too_late",
    "tests/live/test_survival.py::test_suspended_worker_returns",
    "tests/live/test_survival.py::test_restarted_worker_reports_its_lost_attempts",
    "tests/live/test_survival.py::test_unreported_results_survive_a_killed_agent",
    "tests/live/test_survival.py::test_tasks_continue_while_the_master_is_down",
    "tests/simulator/test_global_computing.py::test_output_fits_into_100_columns",
    "tests/simulator/test_global_computing.py::test_the_scenario_in_the_docs_works",
    "tests/simulator/test_no_passing.py::test_output_fits_into_100_columns",
    "tests/simulator/test_output.py::test_each_kind_of_transfer_is_kept",
    "tests/simulator/test_output.py::test_folder_has_tables_runs_and_the_same_csv[no-passing]",
    "tests/simulator/test_output.py::test_folder_has_tables_runs_and_the_same_csv[rack]",
    "tests/simulator/test_output.py::test_folder_has_tables_runs_and_the_same_csv[transfer]",
    "tests/simulator/test_rack_command.py::test_log_has_pictures_of_each_figure",
    "tests/simulator/test_transfer_rounds.py::test_command_prints_a_table_of_100_columns_and_json",
)
"""Tests with all their cases, by prefixes of their ids."""

LONG = ("tests/explored/", "tests/faults/", "tests/live/", "tests/power/", "tests/properties/")
"""Files of tests that take long, many of them only waiting."""
PARTS = 4
"""Number of processes in a run; at first each gets one part of the tests."""


def spread(tests: list[str]) -> list[int]:
    """Return the positions of these tests in an order that spreads the long ones between other files.

    Neighbours among the long ones go to different parts. No other file is divided: its tests may share a fixture.
    """
    long = [number for number, test in enumerate(tests) if test.startswith(LONG)]
    others = [number for number, test in enumerate(tests) if not test.startswith(LONG)]
    dealt = [number for part in range(PARTS) for number in long[part::PARTS]]
    order, file = list[int](), ""
    for place, number in enumerate(others):
        if (its_file := tests[number].partition("::")[0]) != file:
            file, placed = its_file, len(order) - place
            order += dealt[placed : 1 + place * len(dealt) // len(others)]
        order.append(number)
    return order + dealt[len(order) - len(others) :]


def is_full(test: str) -> bool:
    """Return whether the test with this id, such as ``tests/a/test_b.py::test_c[1]``, is left to `make test-full`."""
    return test.startswith(FILES) or test.startswith(TESTS) or "[postgres" in test
