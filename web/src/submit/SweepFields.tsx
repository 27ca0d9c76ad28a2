import { Button } from "../ui/Button";
import { Field } from "../ui/Field";
import type { Draft, Mistakes, ParameterDraft } from "./draft";

interface Props {
  draft: Draft;
  mistakes: Mistakes;
  onChange: (part: Partial<Draft>) => void;
}

/** One task for each combination of values, or for each line of a table. */
export function SweepFields({ draft, mistakes, onChange }: Props) {
  return (
    <fieldset>
      <legend>Sweep</legend>
      <div class="buttons joined" role="group" aria-label="Kind of sweep">
        <Button isPressed={draft.sweep === "grid"} onClick={() => onChange({ sweep: "grid" })}>
          All combinations
        </Button>
        <Button isPressed={draft.sweep === "table"} onClick={() => onChange({ sweep: "table" })}>
          A table
        </Button>
      </div>
      {draft.sweep === "grid" ? (
        <GridFields
          parameters={draft.parameters}
          mistake={mistakes.parameters}
          onChange={(parameters) => onChange({ parameters })}
        />
      ) : (
        <TableField table={draft.table} mistake={mistakes.table} onChange={(table) => onChange({ table })} />
      )}
    </fieldset>
  );
}

interface GridProps {
  parameters: ParameterDraft[];
  mistake: string | undefined;
  onChange: (parameters: ParameterDraft[]) => void;
}

function GridFields({ parameters, mistake, onChange }: GridProps) {
  const replace = (place: number, part: Partial<ParameterDraft>) =>
    onChange(parameters.map((one, at) => (at === place ? { ...one, ...part } : one)));
  return (
    <>
      {parameters.map(({ name, values }, place) => (
        <div class="parameter" key={place}>
          <input
            type="text"
            class="code-input"
            aria-label={`Name of parameter ${place + 1}`}
            placeholder="seed"
            spellcheck={false}
            value={name}
            onInput={(event) => replace(place, { name: event.currentTarget.value })}
          />
          <input
            type="text"
            class="code-input"
            aria-label={`Values of parameter ${place + 1}`}
            placeholder="1..100 or 0.1, 0.01"
            spellcheck={false}
            value={values}
            onInput={(event) => replace(place, { values: event.currentTarget.value })}
          />
          <Button
            kind="quiet"
            label={`Remove parameter ${name || place + 1}`}
            onClick={() => onChange(parameters.filter((_, at) => at !== place))}
          >
            Remove
          </Button>
        </div>
      ))}
      <Button onClick={() => onChange([...parameters, { name: "", values: "" }])}>Add a parameter</Button>
      <p class={mistake ? "note bad" : "note"} role={mistake ? "alert" : undefined}>
        {mistake ?? "Ranges include both ends: 1..100, or 1..100:5 in steps. The command’s {name} becomes the value."}
      </p>
    </>
  );
}

interface TableProps {
  table: string;
  mistake: string | undefined;
  onChange: (table: string) => void;
}

function TableField({ table, mistake, onChange }: TableProps) {
  async function read(file: File | undefined): Promise<void> {
    if (file) onChange(await file.text());
  }
  return (
    <Field
      label="Table, as CSV"
      hint="The first line names the parameters; each other line is a task. Paste it, or drop a file."
      mistake={mistake}
    >
      {(attributes) => (
        <>
          <textarea
            {...attributes}
            rows={6}
            class="code-input"
            placeholder={"alpha,beta\n0.1,3\n0.2,5"}
            spellcheck={false}
            value={table}
            onInput={(event) => onChange(event.currentTarget.value)}
            onDragOver={(event) => event.preventDefault()}
            onDrop={(event) => {
              event.preventDefault();
              void read(event.dataTransfer?.files[0]);
            }}
          />
          <input
            type="file"
            accept=".csv,.tsv,.txt,text/csv"
            aria-label="Read the table from a file"
            onChange={(event) => void read(event.currentTarget.files?.[0])}
          />
        </>
      )}
    </Field>
  );
}
