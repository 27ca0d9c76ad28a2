import { useEffect, useRef, useState } from "preact/hooks";
import { asProblem, get, post, type Problem } from "../api/client";
import type { JobDetail, Submission } from "../api/types";
import { go, search } from "../router";
import { maySubmit } from "../session/session";
import { plural } from "../text/human";
import { Button } from "../ui/Button";
import { Section } from "../ui/Section";
import { Empty, ProblemNote } from "../ui/states";
import { say } from "../ui/toast";
import { useAbilities } from "../api/abilities";
import { DetailFields } from "./DetailFields";
import { type Draft, draftOf, EMPTY, meaningOf } from "./draft";
import { FilesField, type InputFile } from "./FilesField";
import { PreviewPane } from "./PreviewPane";
import { SweepFields } from "./SweepFields";
import { taskCount } from "./sweep";
import { TextField } from "./TextField";

export function SubmitPage() {
  return (
    <>
      <h1>Submit a job</h1>
      {maySubmit.value ? (
        <SubmitForm />
      ) : (
        <Empty>
          Your token lets you look, not submit. An admin makes others: <code>loopline token create</code>.
        </Empty>
      )}
    </>
  );
}

function SubmitForm() {
  const [draft, setDraft] = useState<Draft>(EMPTY);
  const [files, setFiles] = useState<InputFile[]>([]);
  const [isTried, setTried] = useState(false);
  const [isBusy, setBusy] = useState(false);
  const [problem, setProblem] = useState<Problem | null>(null);
  const key = useRef(newKey());
  const abilities = useAbilities();
  const change = (part: Partial<Draft>) => setDraft((before) => ({ ...before, ...part }));
  useLikeAnother(setDraft);

  const meant = meaningOf(
    draft,
    Object.fromEntries(files.filter((file) => file.hash).map((file) => [file.path, `sha256:${file.hash}`])),
  );
  const mistakes = { ...meant.mistakes };
  if (!isTried && !draft.command) delete mistakes.command;
  const isSending = files.some((file) => !file.hash && !file.problem);

  async function submit(event: Event): Promise<void> {
    event.preventDefault();
    setTried(true);
    if (Object.keys(meant.mistakes).length) return;
    setBusy(true);
    setProblem(null);
    try {
      const done = await post<Submission>("/jobs", meant.spec, { "Idempotency-Key": key.current });
      say(
        [`Job ${done.id} with ${plural(done.task_count, "task")} is submitted.`, ...(done.warnings ?? [])].join(" "),
      );
      go(`/jobs/${done.id}`);
    } catch (error) {
      const found = asProblem(error);
      if (!found.isAway) key.current = newKey();
      setProblem(found);
      setBusy(false);
    }
  }

  return (
    <form class="submit" onSubmit={submit}>
      <div class="form">
        <TextField
          label="Command"
          hint="what each task runs; {name} becomes the parameter’s value"
          placeholder="python3 pi.py --seed {seed}"
          rows={2}
          isCode
          value={draft.command}
          mistake={mistakes.command}
          onChange={(command) => change({ command })}
        />
        <div class="columns">
          <TextField label="Name" hint="to find it by" value={draft.name} onChange={(name) => change({ name })} />
          <TextField
            label="Size"
            hint="computation of the whole job on a core of speed 1: 90s, 10m, 2h"
            value={draft.size}
            mistake={mistakes.size}
            onChange={(size) => change({ size })}
          />
        </div>
        <SweepFields draft={draft} mistakes={mistakes} onChange={change} />
        {abilities?.inputs && <FilesField files={files} onChange={setFiles} />}
        <DetailFields draft={draft} mistakes={mistakes} abilities={abilities} onChange={change} />
        {problem && <ProblemNote problem={problem} />}
        <Button kind="main" type="submit" isBusy={isBusy} isDisabled={isSending}>
          {isSending ? "Files are being sent …" : `Submit ${plural(taskCount(meant.parameters), "task")}`}
        </Button>
      </div>
      <Section title="Tasks">
        <PreviewPane meant={meant} mayAsk={abilities?.preview ?? false} />
      </Section>
    </form>
  );
}

/** `?like=12`: begin with what job 12 was. */
function useLikeAnother(setDraft: (draft: Draft) => void): void {
  const like = new URLSearchParams(search.value).get("like");
  useEffect(() => {
    if (like)
      void get<JobDetail>(`/jobs/${like}`)
        .then((job) => setDraft(draftOf(job.spec)))
        .catch(() => undefined);
  }, [like]);
}

/** However often one job is sent, because the answer was lost, it is one. */
const newKey = (): string =>
  Array.from(crypto.getRandomValues(new Uint8Array(16)), (byte) => byte.toString(16).padStart(2, "0")).join("");
