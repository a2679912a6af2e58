% Opens a port of the node that evaluates the Erlang that it is sent, for as long as one connection. The last expression is its number.
Self = self(),
Eval = fun(Text) ->
    {ok, Tokens, _} = erl_scan:string(unicode:characters_to_list(Text)),
    {ok, Exprs} = erl_parse:parse_exprs(Tokens),
    {value, Value, _} = erl_eval:exprs(Exprs, []),
    Value end,
Serve = fun Serve(Socket) -> case gen_tcp:recv(Socket, 0) of
    {ok, Text} -> gen_tcp:send(Socket, unicode:characters_to_binary(io_lib:format("~0tp", [catch Eval(Text)]))), Serve(Socket);
    _ -> ok end end,
spawn(fun() ->
    group_leader(whereis(user), self()),
    {ok, Listener} = gen_tcp:listen(0, [binary, {packet, 4}, {active, false}, {ip, {127, 0, 0, 1}}]),
    {ok, Port} = inet:port(Listener),
    Self ! {door, Port},
    {ok, Socket} = gen_tcp:accept(Listener, 10000),
    Serve(Socket) end),
receive {door, Port} -> Port end.
