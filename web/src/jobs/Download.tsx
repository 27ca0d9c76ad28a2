import { API } from "../api/client";
import type { JobView } from "../api/types";

/** Downloads: all results as lines of JSON, and all output files as one archive. */
export function Download({ job }: { job: JobView & { spec: { outputs?: unknown[] } } }) {
  const hasOutputs = (job.spec.outputs ?? []).length > 0;
  return (
    <>
      <a class="button plain" href={`${API}/jobs/${job.id}/results?follow=false`} download={`job-${job.id}.ndjson`}>
        Results
      </a>
      {hasOutputs && (
        <a class="button plain" href={`${API}/jobs/${job.id}/outputs.zip`} download={`job-${job.id}.zip`}>
          Files
        </a>
      )}
    </>
  );
}
