import type { JobDetail } from "../api/types";

/** The specification as submitted. */
export function SpecSection({ job }: { job: JobDetail }) {
  return (
    <details>
      <summary>As submitted</summary>
      <pre class="code" tabIndex={0}>
        {JSON.stringify(given(job.spec), null, 2)}
      </pre>
    </details>
  );
}

/** Returns the specification without defaults. */
function given(spec: object): object {
  return Object.fromEntries(Object.entries(spec).filter(([, value]) => !isNothing(value)));
}

function isNothing(value: unknown): boolean {
  return value === null || value === "" || (typeof value === "object" && Object.keys(value as object).length === 0);
}
