import { Field } from "../ui/Field";
import type { Draft, Mistakes } from "./draft";
import { TextField } from "./TextField";

interface Props {
  draft: Draft;
  mistakes: Mistakes;
  onChange: (part: Partial<Draft>) => void;
}

/** Optional details of a job. */
export function DetailFields({ draft, mistakes, onChange }: Props) {
  const text = (
    field:
      | "nodes"
      | "timeout"
      | "attempts"
      | "replicas"
      | "memory"
      | "slots"
      | "labels"
      | "gpus"
      | "needs"
      | "after"
      | "folder"
      | "python"
      | "image"
      | "killAfter"
      | "retryDelay"
      | "notify",
    label: string,
    hint: string,
  ) => (
    <TextField
      label={label}
      hint={hint}
      value={draft[field]}
      mistake={mistakes[field]}
      onChange={(value) => onChange({ [field]: value })}
    />
  );
  return (
    <details>
      <summary>Requirements, packages, environment, limits, dependencies, notification</summary>
      <div class="columns">
        <Field label="System" hint="that tasks run on">
          {(attributes) => (
            <select
              {...attributes}
              value={draft.os}
              onChange={(event) => onChange({ os: event.currentTarget.value })}
            >
              <option value="">any</option>
              <option value="linux">Linux</option>
              <option value="macos">macOS</option>
              <option value="windows">Windows</option>
            </select>
          )}
        </Field>
        {text("memory", "Memory of a task", "2GB, 512MiB")}
        {text("nodes", "Nodes", "workers that a task runs on at once; default: 1")}
        {text("slots", "Slots of a task", "on each of its workers; default: 1")}
        {text("labels", "Labels", "that a worker must have: matlab gpu")}
        {text("gpus", "GPUs of a task", "of one worker; 0.5: half of one, where the worker allows that")}
        {text("needs", "Units of a task", "of limits and of a worker’s resources: matlab fpga=2")}
        <Field label="Whole worker" hint="for each task: it has all slots, and nothing else runs there">
          {(attributes) => (
            <input
              {...attributes}
              type="checkbox"
              checked={draft.exclusive}
              onChange={(event) => onChange({ exclusive: event.currentTarget.checked })}
            />
          )}
        </Field>
        {text(
          "timeout",
          "Time limit",
          "of an attempt, which is then ended: 90s, 10m, 2h; jobs with several nodes are planned by it",
        )}
        {text("killAfter", "Time to save", "from SIGTERM to SIGKILL at the time limit or a cancel; default: 10s")}
        {text("attempts", "Attempts per task", "maximum, if it fails")}
        {text(
          "retryDelay",
          "Retry delay",
          "before a failed task is run again, doubled each time: 30s; default: none",
        )}
        {text("replicas", "Replicas", "attempts of one task at once: a number, or unlimited; 1: no replicas")}
        {text("folder", "Folder", "jobs of one name and folder are runs of one program, whose size is learnt")}
        {text("image", "Image", "a container image that tasks run in: docker.io/library/r-base:4.4.2")}
        {text("notify", "Notify", "when the job ends: a URL, or the name of one of the master’s commands")}
        {text("after", "Depends on jobs", "numbers of jobs that must succeed first: 12 13")}
        <Field label="Network" hint="in a sandbox tasks have none otherwise">
          {(attributes) => (
            <input
              {...attributes}
              type="checkbox"
              checked={draft.network}
              onChange={(event) => onChange({ network: event.currentTarget.checked })}
            />
          )}
        </Field>
      </div>
      <TextField
        label="Packages"
        hint="Python packages in an environment of the job, one a line as in requirements.txt: numpy==2.3.1"
        rows={3}
        isCode
        value={draft.packages}
        mistake={mistakes.packages}
        onChange={(packages) => onChange({ packages })}
      />
      <div class="columns">
        {text("python", "Python of these packages", "a version such as 3.12; default: as the worker has")}
        <Field label="Allow builds" hint="of packages without a wheel, which runs their code in the sandbox of tasks">
          {(attributes) => (
            <input
              {...attributes}
              type="checkbox"
              checked={draft.builds}
              onChange={(event) => onChange({ builds: event.currentTarget.checked })}
            />
          )}
        </Field>
      </div>
      <TextField
        label="Environment"
        hint="NAME=VALUE, one a line"
        rows={3}
        isCode
        value={draft.environment}
        mistake={mistakes.environment}
        onChange={(environment) => onChange({ environment })}
      />
      <TextField
        label="Secrets"
        hint="NAME=VALUE, one a line; stored sealed, never shown again, and not kept by this page"
        rows={2}
        isCode
        value={draft.secrets}
        mistake={mistakes.secrets}
        onChange={(secrets) => onChange({ secrets })}
      />
    </details>
  );
}
