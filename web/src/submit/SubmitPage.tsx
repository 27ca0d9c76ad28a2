import { useEffect, useLayoutEffect, useRef, useState } from "preact/hooks";
import { asProblem, get, post, type Problem } from "../api/client";
import type { JobDetail, JobSpec, Submission } from "../api/types";
import { go, search } from "../router";
import { caller, maySubmit } from "../session/session";
import { plural } from "../text/human";
import { Button } from "../ui/Button";
import { Section } from "../ui/Section";
import { Empty, ProblemNote } from "../ui/states";
import { say } from "../ui/toast";
import { DetailFields } from "./DetailFields";
import { type Draft, draftOf, EMPTY, leftOut, type Meant, meaningOf } from "./draft";
import { FilesField, type InputFile } from "./FilesField";
import { filesOf, inputsOf } from "./inputs";
import { keepDraft, keptDraft } from "./kept";
import { PreviewPane } from "./PreviewPane";
import { SweepFields } from "./SweepFields";
import { taskCount } from "./sweep";
import { TextField } from "./TextField";
import { upload } from "./upload";

export function SubmitPage() {
  return (
    <>
      <h1>Submit a job</h1>
      {maySubmit.value ? (
        <SubmitForm />
      ) : (
        <Empty>
          Your token is read-only. An admin creates others: <code>loopline token create</code>.
        </Empty>
      )}
    </>
  );
}

function SubmitForm() {
  const [kept] = useState(() => (likeWhich() ? null : keptDraft(EMPTY, caller.value!.name)));
  const [draft, setDraft] = useState<Draft>(kept?.draft ?? EMPTY);
  const [files, setFiles] = useState<InputFile[]>(kept?.files ?? []);
  const [isTried, setTried] = useState(false);
  const [isBusy, setBusy] = useState(false);
  const [problem, setProblem] = useState<Problem | null>(null);
  const key = useRef(kept?.key ?? newKey());
  const change = (part: Partial<Draft>) => setDraft((before) => ({ ...before, ...part }));
  const missing = useLikeAnother((job) => {
    setDraft(draftOf(job.spec));
    setFiles(filesOf(job.spec.inputs ?? {}));
  });

  const isEmpty = draft === EMPTY && !files.length;
  // Before anything else happens, for the next thing may be a reload.
  useLayoutEffect(() => {
    keepDraft(isEmpty ? null : { draft, files, key: key.current, by: caller.value!.name });
  }, [draft, files]);

  const meant = meaningOf(draft, inputsOf(files));
  const mistakes = { ...meant.mistakes };
  if (!isTried && !draft.command) delete mistakes.command;
  const isSending = files.some((file) => !file.hash && !file.problem);
  const isUnsent = files.some((file) => file.problem);

  function empty(): void {
    setDraft(EMPTY);
    setFiles([]);
    setTried(false);
  }

  async function submit(event: Event): Promise<void> {
    event.preventDefault();
    setTried(true);
    if (Object.keys(meant.mistakes).length || isUnsent) return;
    setBusy(true);
    setProblem(null);
    try {
      const done = await post<Submission>("/jobs", await withPackages(meant), { "Idempotency-Key": key.current });
      say(
        [`Job ${done.id} with ${plural(done.task_count, "task")} is submitted.`, ...(done.warnings ?? [])].join(" "),
      );
      keepDraft(null);
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
        {missing.length > 0 && (
          <p class="note bad">
            This form has no field for some of that job, and leaves it out: {missing.join(", ")}.
          </p>
        )}
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
            hint="computation of the whole job on a core of speed 1: 90s, 10m, 2h; without, it is predicted"
            value={draft.size}
            mistake={mistakes.size}
            onChange={(size) => change({ size })}
          />
        </div>
        <SweepFields draft={draft} mistakes={mistakes} onChange={change} />
        <FilesField files={files} onChange={setFiles} />
        <TextField
          label="Files to keep"
          hint="that tasks write: *.csv plots/*.png; a task without them fails"
          value={draft.outputs}
          mistake={mistakes.outputs}
          onChange={(outputs) => change({ outputs })}
        />
        <TextField
          label="Files to keep, if there are any"
          value={draft.optionalOutputs}
          mistake={mistakes.optionalOutputs}
          onChange={(optionalOutputs) => change({ optionalOutputs })}
        />
        <DetailFields draft={draft} mistakes={mistakes} onChange={change} />
        {isTried && isUnsent && (
          <p class="note bad" role="alert">
            A file could not be sent: drop it again, or remove it.
          </p>
        )}
        {problem && <ProblemNote problem={problem} />}
        <div class="buttons">
          <Button kind="main" type="submit" isBusy={isBusy} isDisabled={isSending}>
            {isSending ? "Uploading files …" : `Submit ${plural(taskCount(meant.parameters), "task")}`}
          </Button>
          {!isEmpty && (
            <Button kind="quiet" onClick={empty}>
              Empty the form
            </Button>
          )}
        </div>
      </div>
      <Section title="Tasks">
        <PreviewPane meant={meant} />
      </Section>
    </form>
  );
}

/** The job with its list of packages, which is sent before it. */
async function withPackages({ spec, packages }: Meant): Promise<JobSpec> {
  if (packages === null) return spec;
  const hash = await upload(new Blob([packages]), () => undefined, new AbortController().signal);
  const software = { ...spec.requires?.software, packages: `sha256:${hash}` };
  return { ...spec, requires: { ...spec.requires, software } } as JobSpec;
}

/** `?like=12`: starts from job 12; names the parts that the form cannot express. */
function useLikeAnother(take: (job: JobDetail) => void): string[] {
  const [missing, setMissing] = useState<string[]>([]);
  const like = likeWhich();
  useEffect(() => {
    if (like)
      void get<JobDetail>(`/jobs/${like}`)
        .then((job) => {
          take(job);
          setMissing(leftOut(job.spec));
        })
        .catch((error: unknown) => say(`Job ${like} cannot be loaded: ${asProblem(error).message}.`));
  }, [like]);
  return missing;
}

const likeWhich = (): string | null => new URLSearchParams(search.value).get("like");

/** However often one job is sent, because the answer was lost, it is one. */
const newKey = (): string =>
  Array.from(crypto.getRandomValues(new Uint8Array(16)), (byte) => byte.toString(16).padStart(2, "0")).join("");
