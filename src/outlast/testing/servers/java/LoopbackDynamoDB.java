import java.lang.reflect.Field;

/** DynamoDB Local, listening on 127.0.0.1 only: its own main class listens on every address. */
public final class LoopbackDynamoDB {
    private LoopbackDynamoDB() {}

    public static void main(String[] args) throws Exception {
        Class<?> runner = Class.forName("software.amazon.dynamodb.services.local.main.ServerRunner");
        Object local =
                runner.getMethod("createServerFromCommandLineArgs", String[].class)
                        .invoke(null, (Object) args);
        Field field = local.getClass().getDeclaredField("server");
        field.setAccessible(true);
        Object server = field.get(local);
        Object[] connectors = (Object[]) server.getClass().getMethod("getConnectors").invoke(server);
        for (Object connector : connectors) {
            connector.getClass().getMethod("setHost", String.class).invoke(connector, "127.0.0.1");
        }
        local.getClass().getMethod("start").invoke(local);
    }
}
