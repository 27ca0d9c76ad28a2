import { render } from "preact";
import { App } from "./app";
import { beginSession } from "./session/session";
import "./styles/index.css";

beginSession();
render(<App />, document.getElementById("page")!);
