/** What this master can do: what its own description does not name is not offered, and not asked for. */
import { useResource } from "../live/resource";

const TASK = "/api/v1/jobs/{job}/tasks/{task}";

export interface Abilities {
  inputs: boolean;
  outputs: boolean;
  after: boolean;
  preview: boolean;
  follow: boolean;
  taskOutputs: boolean;
}

interface Document {
  paths: Record<string, { get?: { parameters?: { name: string }[] } } | undefined>;
  components: { schemas: Record<string, { properties?: Record<string, unknown> } | undefined> };
}

const NONE: Abilities = {
  inputs: false,
  outputs: false,
  after: false,
  preview: false,
  follow: false,
  taskOutputs: false,
};

/** undefined: not known yet. */
export function useAbilities(): Abilities | undefined {
  const read = useResource("abilities", async (signal) => {
    const response = await fetch("/openapi.json", { signal });
    return response.ok ? abilitiesOf((await response.json()) as Document) : NONE;
  });
  return read.data ?? (read.problem ? NONE : undefined);
}

export function abilitiesOf(document: Document): Abilities {
  const printed = document.paths[`${TASK}/stdout`];
  const fields = document.components.schemas.JobSpec?.properties ?? {};
  return {
    inputs: "inputs" in fields,
    outputs: "outputs" in fields,
    after: "after" in fields,
    preview: "/api/v1/jobs/preview" in document.paths,
    follow: printed?.get?.parameters?.some(({ name }) => name === "follow") ?? false,
    taskOutputs: `${TASK}/outputs` in document.paths,
  };
}
