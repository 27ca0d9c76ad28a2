import { Field } from "../ui/Field";
import type { Draft, Mistakes } from "./draft";
import { TextField } from "./TextField";

interface Props {
  draft: Draft;
  mistakes: Mistakes;
  onChange: (part: Partial<Draft>) => void;
}

/** What a job may say besides, and mostly does not. */
export function DetailFields({ draft, mistakes, onChange }: Props) {
  const text = (
    field: "timeout" | "attempts" | "replicas" | "memory" | "slots" | "labels" | "after" | "folder",
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
      <summary>Requirements, environment, limits, jobs to come after</summary>
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
        {text("slots", "Slots of a task", "1 unless it says more")}
        {text("labels", "Labels", "that a worker must have: matlab gpu")}
        {text("timeout", "Timeout of an attempt", "90s, 10m, 2h")}
        {text("attempts", "Attempts a task", "how often one that fails is run")}
        {text("replicas", "At once", "attempts of one task: a number, or unlimited; 1: no replicas")}
        {text("folder", "Folder", "jobs of one name and folder are runs of one program, whose size is learnt")}
        {text("after", "After jobs", "numbers of jobs that must have succeeded: 12 13")}
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
        label="Environment"
        hint="NAME=VALUE, one a line"
        rows={3}
        isCode
        value={draft.environment}
        mistake={mistakes.environment}
        onChange={(environment) => onChange({ environment })}
      />
    </details>
  );
}
